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
 *
 * A tree of it all would take ten times the file's size. So the two large objects are walked as text,
 * and a tree is made of one layout at a time, and of layouts with the same text only once.
 */
#include "base/cleanup.h"
#include "base/intern.h"
#include "base/vec.h"
#include "layout/draft.h"
#include "layout/json_text.h"

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

static int offset_entry(struct rfs_draft *draft, int64_t value)
{
    (void)value;
    draft->n_offsets++;
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
    int rc;

    if (!cJSON_IsObject(item))
        return rfs_draft_fail(draft, REMEDY, "its layout is not an object");
    if ((rc = read_list(draft, item, "dev_matrix", true, dev_entry)) != 0 ||
        (rc = read_list(draft, item, "tensor_map", true, map_entry)) != 0 ||
        (rc = read_list(draft, item, "tensor_shape", false, rfs_draft_expanded)) != 0 ||
        (rc = read_list(draft, item, "param_split_shape", false, rfs_draft_split)) != 0 ||
        (rc = read_list(draft, item, "indices_offset", false, offset_entry)) != 0 ||
        (rc = read_integer(draft, item, "field", &draft->field)) != 0 ||
        (rc = read_integer(draft, item, "opt_weight_shard_step", &draft->opt_step)) != 0)
        return rc;
    return read_integer(draft, item, "opt_weight_shard_size", &draft->opt_size);
}

/* What is being read; all borrowed but the tables. */
struct reading {
    struct rfs_builder *builder;
    struct rfs_draft *draft;
    struct rfs_json_text all;
    struct rfs_intern *layout_texts; /* id = position in layout_ids */
    struct rfs_intern *other_texts;  /* of strategy items known to be valid */
    RFS_VEC(uint32_t) layout_ids;
};

static void reading_clear(struct reading *reading)
{
    rfs_intern_free(reading->layout_texts);
    rfs_intern_free(reading->other_texts);
    free(reading->layout_ids.data);
}

static int invalid(const struct reading *reading, const char *at, const char *what)
{
    return rfs_fail(reading->draft->err, -EINVAL,
                    RFS_AT(reading->draft->file, at - reading->all.data), REMEDY, "%s", what);
}

static int out_of_memory(const struct reading *reading)
{
    return rfs_fail(reading->draft->err, -ENOMEM, RFS_IN(reading->draft->file), NULL,
                    "out of memory");
}

static int parse(const struct reading *reading, struct rfs_json_text text, cJSON **json)
{
    const char *end = text.data;

    errno = 0;
    *json = cJSON_ParseWithLengthOpts(text.data, text.n, &end, 0);
    if (*json != NULL && end == text.data + text.n)
        return 0;
    if (*json == NULL && errno == ENOMEM) /* the only way to tell it from text that is no JSON */
        return out_of_memory(reading);
    return invalid(reading, end, "not valid JSON");
}

static int check_valid(const struct reading *reading, struct rfs_json_text text)
{
    cJSON *json RFS_CLEANUP(free_json) = NULL;

    return parse(reading, text, &json);
}

/* A key without its quotes. TREE owns it when it had to be unescaped. */
struct key {
    struct rfs_json_text text;
    cJSON *tree;
};

static void free_key(struct key *key)
{
    cJSON_Delete(key->tree);
}

static int read_key(const struct reading *reading, struct rfs_json_text quoted, struct key *key)
{
    cJSON_Delete(key->tree);
    key->tree = NULL;
    key->text = (struct rfs_json_text){quoted.data + 1, quoted.n - 2};
    if (memchr(quoted.data, '\\', quoted.n) == NULL)
        return 0;
    const int rc = parse(reading, quoted, &key->tree);
    if (rc == 0)
        key->text = (struct rfs_json_text){key->tree->valuestring, strlen(key->tree->valuestring)};
    return rc;
}

static bool same_text(struct rfs_json_text a, struct rfs_json_text b)
{
    return a.n == b.n && memcmp(a.data, b.data, a.n) == 0;
}

static int read_layout(struct reading *reading, struct rfs_json_text name,
                       struct rfs_json_text value)
{
    struct rfs_draft *draft = reading->draft;
    cJSON *json RFS_CLEANUP(free_json) = NULL;
    const uint32_t text = rfs_intern_add(reading->layout_texts, value.data, value.n);
    int rc;

    rfs_draft_begin(draft, name.data, name.n);
    if (text == RFS_NO_ID)
        return out_of_memory(reading);
    if (text < reading->layout_ids.n)
        return rfs_builder_repeat(reading->builder, draft, reading->layout_ids.data[text]);
    if ((rc = parse(reading, value, &json)) != 0 || (rc = read_item(draft, json)) != 0 ||
        (rc = rfs_builder_add(reading->builder, draft)) != 0)
        return rc;
    return RFS_PUSH(&reading->layout_ids, draft->layout.id) ? 0 : out_of_memory(reading);
}

static int read_layouts(struct reading *reading, struct rfs_json_text items)
{
    struct rfs_json_walk walk = rfs_json_walk_begin(items);
    struct rfs_json_text quoted, value;
    struct key key RFS_CLEANUP(free_key) = {0};
    int rc = 0;

    while (rc == 0 && rfs_json_walk_next(&walk, &quoted, &value)) {
        rc = read_key(reading, quoted, &key);
        if (rc == 0)
            rc = read_layout(reading, key.text, value);
    }
    return rc == 0 && walk.wrong ? invalid(reading, walk.at, "not valid JSON") : rc;
}

static int read_stage(struct reading *reading, struct rfs_json_text item)
{
    cJSON *json RFS_CLEANUP(free_json) = NULL;
    int64_t stage = 0;
    const int rc = parse(reading, item, &json);

    if (rc != 0)
        return rc;
    if (!cJSON_IsObject(json) || !integer(member(json, "stage"), &stage) || stage < 0 ||
        stage > (int64_t)UINT32_MAX)
        return invalid(reading, item.data, "the first strategy item has no stage");
    rfs_builder_first_item_stage(reading->builder, (uint32_t)stage);
    return 0;
}

/* Only the stage of the first item matters, but all must be JSON. */
static int read_strategies(struct reading *reading, struct rfs_json_text items)
{
    struct rfs_json_walk walk = rfs_json_walk_begin(items);
    struct rfs_json_text quoted, value, first_value = {0};
    struct key first RFS_CLEANUP(free_key) = {0}, key RFS_CLEANUP(free_key) = {0};
    uint32_t known = 0;
    int rc = 0;

    while (rc == 0 && rfs_json_walk_next(&walk, &quoted, &value)) {
        const uint32_t text = rfs_intern_add(reading->other_texts, value.data, value.n);
        if (text == RFS_NO_ID)
            return out_of_memory(reading);
        if (text == known) {
            known++;
            rc = check_valid(reading, value);
        }
        if (rc == 0)
            rc = read_key(reading, quoted, first_value.n == 0 ? &first : &key);
        if (rc == 0 && (first_value.n == 0 || same_text(first.text, key.text)))
            first_value = value;
    }
    if (rc == 0 && walk.wrong)
        rc = invalid(reading, walk.at, "not valid JSON");
    return rc == 0 && first_value.n > 0 ? read_stage(reading, first_value) : rc;
}

/* cJSON ends strings at a NUL, which would make two names one: there may be none, escaped or not. */
static const char *find_nul(const char *data, size_t size)
{
    const char *end = data + size, *nul = memchr(data, '\0', size);

    if (nul != NULL)
        return nul;
    while ((data = memchr(data, '\\', (size_t)(end - data))) != NULL) {
        if (end - data >= 6 && memcmp(data, "\\u0000", 6) == 0)
            return data;
        if (end - data < 2)
            break;
        data += 2; /* whatever is escaped, it begins no escape itself */
    }
    return NULL;
}

struct root {
    struct rfs_json_text layouts, strategies; /* n 0: not there */
};

static int find_parts(struct reading *reading, struct root *root)
{
    struct rfs_json_walk walk = rfs_json_walk_begin(reading->all);
    struct rfs_json_text quoted, value;
    struct key key RFS_CLEANUP(free_key) = {0};
    int rc = 0;

    while (rc == 0 && rfs_json_walk_next(&walk, &quoted, &value)) {
        static const struct rfs_json_text layouts = {"parallel_layout_item", 20},
                                          strategies = {"parallel_strategy_item", 22};
        struct rfs_json_text *part = NULL, unused = value;
        if ((rc = read_key(reading, quoted, &key)) != 0)
            return rc;
        if (same_text(key.text, layouts))
            part = &root->layouts;
        else if (same_text(key.text, strategies))
            part = &root->strategies;
        if (part != NULL) {
            unused = *part;
            *part = value;
        }
        if (unused.n > 0)
            rc = check_valid(reading, unused);
    }
    return rc == 0 && walk.wrong ? invalid(reading, walk.at, "not valid JSON") : rc;
}

static int check_object(const struct reading *reading, struct rfs_json_text text, const char *what)
{
    if (rfs_json_is_object(text))
        return 0;
    const int rc = check_valid(reading, text);
    return rc == 0 ? invalid(reading, text.data, what) : rc;
}

static int read_root(struct reading *reading)
{
    struct root root = {.layouts = {0}};
    int rc;

    if ((rc = check_object(reading, reading->all, "not a strategy in JSON: not an object")) != 0 ||
        (rc = find_parts(reading, &root)) != 0)
        return rc;
    if (root.strategies.n > 0 &&
        ((rc = check_object(reading, root.strategies, "parallel_strategy_item is not an object")) !=
             0 ||
         (rc = read_strategies(reading, root.strategies)) != 0))
        return rc;
    if (root.layouts.n > 0 &&
        ((rc = check_object(reading, root.layouts, "parallel_layout_item is not an object")) != 0 ||
         (rc = read_layouts(reading, root.layouts)) != 0))
        return rc;
    return 0;
}

int rfs_strategy_read_json(struct rfs_builder *builder, struct rfs_draft *draft, const char *data,
                           size_t size)
{
    struct reading reading RFS_CLEANUP(reading_clear) = {
        .builder = builder,
        .draft = draft,
        .all = {data, size},
        .layout_texts = rfs_intern_new(),
        .other_texts = rfs_intern_new(),
    };
    const char *nul = find_nul(data, size);

    if (reading.layout_texts == NULL || reading.other_texts == NULL)
        return out_of_memory(&reading);
    return nul != NULL ? invalid(&reading, nul, "not valid JSON: a NUL in it")
                       : read_root(&reading);
}
