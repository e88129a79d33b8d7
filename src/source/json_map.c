/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   {"0": "a/rank_0.ckpt", "1": "…"}                                             a map of files
 *   {"metadata": {…}, "weight_map": {"w": "model-00001-of-00002.safetensors"}}   model.safetensors.index.json
 *   {"metadata": {"total_size": 8}, "weight_map": {"w": "part0.safetensors"}}    param_name_map.json
 *   {"w": "part0.safetensors"}                                                   the same, before 2.5
 *
 * Sources: transformers, and unified_safetensors and _load_parallel_checkpoint of MindSpore 2.10, which takes
 * the whole object where there is no weight_map. Of keys given twice the last would count in Python; here they
 * are refused.
 */
#include "source/json_map.h"

#include "base/cleanup.h"
#include "base/vec.h"
#include "source/files.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void free_json(cJSON **json)
{
    cJSON_Delete(*json);
}

void rfs_json_map_free(struct rfs_json_map *map)
{
    for (size_t i = 0; i < map->n; i++) {
        free(map->data[i].key);
        free(map->data[i].value);
    }
    free(map->data);
    *map = (struct rfs_json_map){0};
}

static int fail(struct rfs_error *err, const char *path, const char *what)
{
    return rfs_fail(err, -EINVAL, RFS_IN(path), "the file as it was written", "%s", what);
}

/* cJSON ends a text at the first NUL. */
static bool has_nul(const char *data, size_t size)
{
    return memchr(data, '\0', size) || strstr(data, "\\u0000");
}

static int add_pair(struct rfs_json_map *map, const cJSON *item, struct rfs_error *err)
{
    struct rfs_json_pair pair = {strdup(item->string), strdup(item->valuestring)};
    if (pair.key && pair.value && RFS_PUSH(map, pair))
        return 0;
    free(pair.key);
    free(pair.value);
    return rfs_fail_memory(err);
}

static int compare_keys(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    return strcmp(*x, *y);
}

static int check_keys(const char *path, const struct rfs_json_map *map, struct rfs_error *err)
{
    RFS_FREE const char **keys = calloc(map->n > 0 ? map->n : 1, sizeof *keys);
    if (!keys)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < map->n; i++)
        keys[i] = map->data[i].key;
    qsort(keys, map->n, sizeof *keys, compare_keys);
    for (size_t i = 1; i < map->n; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            return rfs_fail(err, -EINVAL, RFS_IN(path), "leave one of them out",
                            "the key '%s' comes twice", keys[i]);
    return 0;
}

/* The object that is the map; NULL with *rc set when there is none. */
static const cJSON *find_map(const char *path, const cJSON *root, enum rfs_json_map_kind kind,
                             int *rc, struct rfs_error *err)
{
    const cJSON *child;
    const cJSON *map = kind == RFS_JSON_WEIGHT_MAP ? NULL : root;
    size_t found = 0;
    if (!cJSON_IsObject(root)) {
        *rc = fail(err, path, "not a JSON object");
        return NULL;
    }
    if (kind == RFS_JSON_PLAIN)
        return root;
    cJSON_ArrayForEach(child, root)
    {
        if (strcmp(child->string, "weight_map") != 0)
            continue;
        map = child;
        found++;
    }
    if (found > 1)
        *rc = fail(err, path, "weight_map comes twice");
    else if (!map)
        *rc = fail(err, path, "it has no weight_map, which says where each parameter is");
    else if (!cJSON_IsObject(map))
        *rc = fail(err, path, "its weight_map is not an object");
    return *rc < 0 ? NULL : map;
}

int rfs_json_map_parse(const char *path, const char *data, size_t size, enum rfs_json_map_kind kind,
                       struct rfs_json_map *out, struct rfs_error *err)
{
    RFS_CLEANUP(free_json) cJSON *root = NULL;
    const char *end = NULL;
    *out = (struct rfs_json_map){0};
    if (has_nul(data, size))
        return fail(err, path, "not valid JSON: a NUL in it");
    errno = 0;
    root = cJSON_ParseWithLengthOpts(data, size + 1, &end, true);
    if (!root && errno == ENOMEM) /* the only way to tell it from text that is no JSON */
        return rfs_fail_memory(err);
    if (!root)
        return rfs_fail(err, -EINVAL, RFS_AT(path, end ? end - data : 0), NULL, "not valid JSON");
    const cJSON *item;
    int rc = 0;
    const cJSON *map = find_map(path, root, kind, &rc, err);
    if (!map)
        return rc;
    cJSON_ArrayForEach(item, map)
    {
        if (!cJSON_IsString(item))
            return rfs_fail(err, -EINVAL, RFS_IN(path), "the name of a file for each",
                            "the value of '%s' is not a text", item->string);
        rc = add_pair(out, item, err);
        if (rc < 0)
            return rc;
    }
    return check_keys(path, out, err);
}

int rfs_json_map_read(const struct rfs_beneath *beneath, const char *path,
                      enum rfs_json_map_kind kind, struct rfs_json_map *out, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    *out = (struct rfs_json_map){0};
    const int rc = rfs_read_beneath(beneath, path, RFS_JSON_MAP_BYTES, &data, &size, err);
    return rc < 0 ? rc : rfs_json_map_parse(path, data, size, kind, out, err);
}
