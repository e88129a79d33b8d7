/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/part_map.h"

#include "base/order.h"
#include "base/path.h"
#include "base/vec.h"
#include "store/json_map.h"

#define MINDSPORE_NAME "param_name_map.json"
#define REMEDY_MAP "copy the folder again, or save the checkpoint again"

struct reader {
    struct rfs_part_map *map;
    struct rfs_tables *tables;
    const char *const *files;
    size_t n_files;
    struct rfs_intern *tails; /* the files' last components */
    uint32_t *part_of;        /* [ids of tails] the first file that has it */
    struct rfs_error *err;
};

static int fail_memory(const struct reader *reader)
{
    return rfs_fail_memory_of(reader->err, reader->map->path);
}

static int index_files(struct reader *reader)
{
    reader->tails = rfs_intern_new();
    reader->part_of = malloc(reader->n_files * sizeof *reader->part_of + 1);
    if (!reader->tails || !reader->part_of)
        return fail_memory(reader);
    for (size_t i = 0; i < reader->n_files; i++) {
        const char *tail = rfs_path_name(reader->files[i]);
        const uint32_t before = rfs_intern_count(reader->tails);
        const uint32_t id = rfs_intern_add(reader->tails, tail, strlen(tail));
        if (id == RFS_NO_ID)
            return fail_memory(reader);
        if (id == before)
            reader->part_of[id] = (uint32_t)i;
    }
    return 0;
}

static int add_pair(struct reader *reader, const struct rfs_json_pair *pair)
{
    struct rfs_mapped mapped = {0};
    const uint32_t id = rfs_intern_find(reader->tails, pair->value, strlen(pair->value));
    if (id == RFS_NO_ID)
        return rfs_fail(reader->err, -ENOENT, RFS_OF(reader->map->path, pair->key), REMEDY_MAP,
                        "should be in '%.200s', and that file is missing", pair->value);
    mapped.part = reader->part_of[id];
    mapped.name = rfs_intern_add(reader->tables->names, pair->key, strlen(pair->key));
    if (mapped.name == RFS_NO_ID || reader->map->n >= UINT32_MAX || !RFS_PUSH(reader->map, mapped))
        return fail_memory(reader);
    return 0;
}

static int compare_names(const void *a, const void *b, void *ctx)
{
    const struct rfs_mapped *list = ctx;
    const uint32_t x = list[*(const uint32_t *)a].name;
    const uint32_t y = list[*(const uint32_t *)b].name;
    return x < y ? -1 : x > y;
}

static int order_names(struct reader *reader)
{
    struct rfs_part_map *map = reader->map;
    map->by_name = malloc(map->n * sizeof *map->by_name + 1);
    if (!map->by_name)
        return fail_memory(reader);
    for (size_t i = 0; i < map->n; i++)
        map->by_name[i] = (uint32_t)i;
    qsort_r(map->by_name, map->n, sizeof *map->by_name, compare_names, map->data);
    return 0;
}

int rfs_part_map_read(const struct rfs_beneath *beneath, const char *path, const char *const *files,
                      size_t n_files, struct rfs_tables *tables, struct rfs_part_map *out,
                      struct rfs_error *err)
{
    struct reader reader = {.map = out, .tables = tables, .files = files, .n_files = n_files};
    struct rfs_json_map json = {0};
    *out = (struct rfs_part_map){.path = strdup(path)};
    reader.err = err;
    if (!out->path)
        return rfs_fail_memory_of(err, path);
    const bool mindspore = strcmp(rfs_path_name(path), MINDSPORE_NAME) == 0;
    out->closed = mindspore && n_files > 1;
    int rc = rfs_json_map_read(beneath, path,
                               mindspore ? RFS_JSON_WEIGHT_MAYBE : RFS_JSON_WEIGHT_MAP, &json, err);
    if (rc == 0)
        rc = index_files(&reader);
    for (size_t i = 0; rc == 0 && i < json.n; i++)
        rc = add_pair(&reader, &json.data[i]);
    if (rc == 0)
        rc = order_names(&reader);
    if (reader.tails)
        rfs_intern_free(reader.tails);
    free(reader.part_of);
    rfs_json_map_free(&json);
    return rc;
}

void rfs_part_map_free(struct rfs_part_map *map)
{
    free(map->data);
    free(map->by_name);
    free(map->path);
    *map = (struct rfs_part_map){0};
}

const struct rfs_mapped *rfs_part_map_find(const struct rfs_part_map *map, uint32_t name)
{
    const size_t at = RFS_BISECT(i, map->n, map->data[map->by_name[i]].name >= name);
    const struct rfs_mapped *mapped = at < map->n ? &map->data[map->by_name[at]] : NULL;

    return mapped && mapped->name == name ? mapped : NULL;
}
