/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy files in JSON, the only user of cJSON.
 *
 *   {"current_stage": 2,
 *    "parallel_strategy_item": {NODE: {"stage": 0, "parallel_strategy": [[…], …]}, …},
 *    "parallel_layout_item": {PARAM: {"dev_matrix": […], "tensor_map": […], "tensor_shape": […],
 *                                     "field": 0, "opt_weight_shard_step": 0,
 *                                     "opt_weight_shard_size": 0
 *                                     [, "param_split_shape": […], "indices_offset": […]]}, …}}
 *
 * tensor_map is flat even where the layout is nested; tensor_shape is expanded in the same way then,
 * and the full shape otherwise. Of keys given twice the last one counts, in the place of the first, as
 * in Python. Source: _build_json_strategy of MindSpore 2.10, which does not read tensor_shape.
 */
#include "base/cleanup.h"
#include "layout/draft.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>

#define REMEDY "the file that MindSpore saved as strategy; only those in JSON have names in .json"

/* A double holds every integer up to here. */
#define EXACT ((int64_t)1 << 53)

static void free_json(cJSON **json)
{
    cJSON_Delete(*json);
}

/* cJSON's own look-up takes the first of equal keys; Python keeps the last. */
static const cJSON *member(const cJSON *object, const char *key)
{
    const cJSON *found = NULL, *child;

    cJSON_ArrayForEach(child, object) if (strcmp(child->string, key) == 0) found = child;
    return found;
}

static bool integer(const cJSON *json, int64_t *value)
{
    if (!cJSON_IsNumber(json) || !(json->valuedouble >= (double)-EXACT) ||
        !(json->valuedouble <= (double)EXACT))
        return false;
    *value = (int64_t)json->valuedouble;
    return (double)*value >= json->valuedouble && (double)*value <= json->valuedouble;
}

static int read_integer(struct rfs_draft *draft, const cJSON *item, const char *key, int64_t *value)
{
    const cJSON *json = member(item, key);

    if (json == NULL)
        return rfs_draft_fail(draft, REMEDY, "it has no %s", key);
    if (!integer(json, value))
        return rfs_draft_fail(draft, REMEDY, "%s is not an integer", key);
    return 0;
}

static int dev_entry(struct rfs_draft *draft, int64_t value)
{
    return rfs_draft_dev(draft, value);
}

static int map_entry(struct rfs_draft *draft, int64_t value)
{
    const int rc = rfs_draft_axis(draft);

    return rc == 0 ? rfs_draft_cut(draft, value) : rc;
}

static int split_entry(struct rfs_draft *draft, int64_t value)
{
    (void)value;
    draft->layout.uneven = true;
    return 0;
}

/* Calls ADD for each integer of a list. */
static int read_list(struct rfs_draft *draft, const cJSON *item, const char *key, bool required,
                     int (*add)(struct rfs_draft *, int64_t))
{
    const cJSON *list = member(item, key), *child;
    int64_t value;

    if (list == NULL && !required)
        return 0;
    if (!cJSON_IsArray(list))
        return rfs_draft_fail(draft, REMEDY,
                              list == NULL ? "it has no %s" : "%s is not a list of integers", key);
    cJSON_ArrayForEach(child, list)
    {
        if (!integer(child, &value))
            return rfs_draft_fail(draft, REMEDY, "%s is not a list of integers", key);
        const int rc = add(draft, value);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int read_item(struct rfs_draft *draft, const cJSON *item)
{
    int64_t field = 0;
    int rc;

    if (!cJSON_IsObject(item))
        return rfs_draft_fail(draft, REMEDY, "its layout is not an object");
    if ((rc = read_list(draft, item, "dev_matrix", true, dev_entry)) != 0 ||
        (rc = read_list(draft, item, "tensor_map", true, map_entry)) != 0 ||
        (rc = read_list(draft, item, "tensor_shape", false, rfs_draft_expanded)) != 0 ||
        (rc = read_list(draft, item, "param_split_shape", false, split_entry)) != 0 ||
        (rc = read_list(draft, item, "indices_offset", false, split_entry)) != 0 ||
        (rc = read_integer(draft, item, "field", &field)) != 0 ||
        (rc = read_integer(draft, item, "opt_weight_shard_step", &draft->opt_step)) != 0 ||
        (rc = read_integer(draft, item, "opt_weight_shard_size", &draft->opt_size)) != 0)
        return rc;
    draft->layout.field = field != 0;
    return 0;
}

static int read_first_stage(struct rfs_builder *builder, const struct rfs_draft *draft,
                            const cJSON *items)
{
    int64_t stage = 0;

    if (items == NULL || (cJSON_IsObject(items) && items->child == NULL))
        return 0;
    if (!cJSON_IsObject(items))
        return rfs_fail(draft->err, -EINVAL, RFS_IN(draft->file), REMEDY,
                        "parallel_strategy_item is not an object");
    const cJSON *first = member(items, items->child->string);
    if (!cJSON_IsObject(first) || !integer(member(first, "stage"), &stage) || stage < 0 ||
        stage > (int64_t)UINT32_MAX)
        return rfs_fail(draft->err, -EINVAL, RFS_IN(draft->file), REMEDY,
                        "the first strategy item has no stage");
    rfs_builder_first_item_stage(builder, (uint32_t)stage);
    return 0;
}

/* cJSON ends strings at a NUL, which would make two names one: there may be none, escaped or not. */
static const char *find_nul(const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] == '\0')
            return data + i;
        if (data[i] != '\\')
            continue;
        if (size - i >= 6 && memcmp(data + i, "\\u0000", 6) == 0)
            return data + i;
        i++; /* whatever is escaped, it begins no escape itself */
    }
    return NULL;
}

static bool only_space(const char *from, const char *end)
{
    while (from < end && (*from == ' ' || *from == '\t' || *from == '\n' || *from == '\r'))
        from++;
    return from == end;
}

static int read_root(struct rfs_builder *builder, struct rfs_draft *draft, const cJSON *root)
{
    const cJSON *layouts = member(root, "parallel_layout_item"), *item;
    int rc = read_first_stage(builder, draft, member(root, "parallel_strategy_item"));

    if (rc != 0 || layouts == NULL)
        return rc;
    if (!cJSON_IsObject(layouts))
        return rfs_fail(draft->err, -EINVAL, RFS_IN(draft->file), REMEDY,
                        "parallel_layout_item is not an object");
    cJSON_ArrayForEach(item, layouts)
    {
        rfs_draft_begin(draft, item->string, strlen(item->string));
        rc = read_item(draft, item);
        if (rc == 0)
            rc = rfs_builder_add(builder, draft);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int rfs_strategy_read_json(struct rfs_builder *builder, struct rfs_draft *draft, const char *data,
                           size_t size)
{
    const char *nul = find_nul(data, size), *end = data;

    if (nul != NULL)
        return rfs_fail(draft->err, -EINVAL, RFS_AT(draft->file, nul - data), REMEDY,
                        "not valid JSON: a NUL in it");
    cJSON *root RFS_CLEANUP(free_json) = cJSON_ParseWithLengthOpts(data, size, &end, 0);
    if (root == NULL)
        return rfs_fail(draft->err, -EINVAL, RFS_AT(draft->file, end - data), REMEDY,
                        "not valid JSON");
    if (!only_space(end, data + size))
        return rfs_fail(draft->err, -EINVAL, RFS_AT(draft->file, end - data), REMEDY,
                        "something follows the end of the JSON");
    if (!cJSON_IsObject(root))
        return rfs_fail(draft->err, -EINVAL, RFS_IN(draft->file), REMEDY,
                        "not a strategy in JSON: not an object");
    return read_root(builder, draft, root);
}
