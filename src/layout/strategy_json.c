/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy files in JSON.
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
 * No tree is built: the text is passed over to find its parts, and each part read. Layouts with the same text are
 * read once. So it takes the texts of distinct layouts, and time in the file's bytes.
 */
#include "base/cleanup.h"
#include "base/intern.h"
#include "base/json_read.h"
#include "base/vec.h"
#include "layout/builder.h"

#include <errno.h>
#include <string.h>

#define REMEDY "the file that MindSpore saved as strategy; only those in JSON have names in .json"

/* What is being read; all borrowed but the tables and the name. */
struct reading {
    struct rfs_builder *builder;
    struct rfs_draft *draft;
    const char *data;
    struct rfs_intern *layout_texts; /* id = position in layout_ids */
    RFS_VEC(uint32_t) layout_ids;
    RFS_VEC(char) name; /* of the item at hand */
};

static void reading_clear(struct reading *reading)
{
    rfs_intern_free(reading->layout_texts);
    free(reading->layout_ids.data);
    free(reading->name.data);
}

static int invalid(const struct reading *reading, size_t at, const char *what)
{
    return rfs_fail(reading->draft->err, -EINVAL, RFS_AT(reading->draft->file, at), REMEDY, "%s",
                    what);
}

static int out_of_memory(const struct reading *reading)
{
    return rfs_fail(reading->draft->err, -ENOMEM, RFS_IN(reading->draft->file), NULL,
                    "out of memory");
}

/* Why a walk ended: 0 at the end of what is walked. BASE: where that begins in the file. */
static int ended(const struct reading *reading, const struct rfs_json_read *json, size_t base)
{
    if (json->no_memory)
        return out_of_memory(reading);
    return json->wrong ? rfs_fail(reading->draft->err, -EINVAL,
                                  RFS_AT(reading->draft->file, base + json->at), REMEDY,
                                  "not valid JSON: %s", json->wrong)
                       : 0;
}

static bool is_key(const struct rfs_json_read *json, const char *key)
{
    return json->text_n == strlen(key) && memcmp(json->text, key, json->text_n) == 0;
}

static struct rfs_json_read begin(const struct reading *reading, struct rfs_json_part part)
{
    return rfs_json_read_begin(reading->data + part.at, part.n);
}

/* ---- one layout, which is known to be JSON ---- */

/* A key, and what is done with its value: integers of a list one by one, after what it had before is forgotten. */
struct member {
    const char *key;
    bool required;
    void (*forget)(struct rfs_draft *draft); /* NULL: it is no list, but one integer */
    int (*add)(struct rfs_draft *draft, int64_t value);
};

static void no_dev(struct rfs_draft *draft)
{
    draft->layout.n_dev = 0;
}

static void no_map(struct rfs_draft *draft)
{
    memset(draft->layout.start, 0, sizeof draft->layout.start);
    draft->layout.n_axes = 0;
}

static int add_map(struct rfs_draft *draft, int64_t value)
{
    const int rc = rfs_draft_axis(draft);

    return rc == 0 ? rfs_draft_cut(draft, value) : rc;
}

static void no_expanded(struct rfs_draft *draft)
{
    draft->layout.n_expanded = 0;
}

static void no_rows(struct rfs_draft *draft)
{
    draft->rows.n = 0;
}

static void no_offsets(struct rfs_draft *draft)
{
    draft->n_offsets = 0;
}

static int add_offset(struct rfs_draft *draft, int64_t value)
{
    (void)value;
    draft->n_offsets++;
    return 0;
}

static int set_field(struct rfs_draft *draft, int64_t value)
{
    draft->field = value;
    return 0;
}

static int set_step(struct rfs_draft *draft, int64_t value)
{
    draft->opt_step = value;
    return 0;
}

static int set_size(struct rfs_draft *draft, int64_t value)
{
    draft->opt_size = value;
    return 0;
}

static const struct member members[] = {
    {"dev_matrix", true, no_dev, rfs_draft_dev},
    {"tensor_map", true, no_map, add_map},
    {"tensor_shape", false, no_expanded, rfs_draft_expanded},
    {"param_split_shape", false, no_rows, rfs_draft_split},
    {"indices_offset", false, no_offsets, add_offset},
    {"field", true, NULL, set_field},
    {"opt_weight_shard_step", true, NULL, set_step},
    {"opt_weight_shard_size", true, NULL, set_size},
};

enum { MEMBERS = sizeof members / sizeof *members };

static int read_value(struct reading *reading, struct rfs_json_read *json,
                      const struct member *member)
{
    struct rfs_draft *draft = reading->draft;
    bool first = true;
    int64_t value;
    int rc = 0;

    if (!member->forget)
        return rfs_json_read_i64(json, &value)
                   ? member->add(draft, value)
                   : rfs_draft_fail(draft, REMEDY, "%s is not an integer", member->key);
    member->forget(draft);
    while (rc == 0 && rfs_json_read_element(json, &first))
        rc = rfs_json_read_i64(json, &value) ? member->add(draft, value) : 0;
    return rc == 0 && json->wrong
               ? rfs_draft_fail(draft, REMEDY, "%s is not a list of integers", member->key)
               : rc;
}

static int read_members(struct reading *reading, struct rfs_json_read *json)
{
    unsigned seen = 0;
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(json, &first)) {
        unsigned i = 0;
        while (i < MEMBERS && !is_key(json, members[i].key))
            i++;
        seen |= 1u << i;
        if (i < MEMBERS)
            rc = read_value(reading, json, &members[i]);
        else
            rfs_json_read_skip(json);
    }
    if (rc == 0 && json->wrong)
        return out_of_memory(reading);
    for (unsigned i = 0; rc == 0 && i < MEMBERS; i++)
        if (members[i].required && !(seen >> i & 1))
            rc = rfs_draft_fail(reading->draft, REMEDY, "it has no %s", members[i].key);
    return rc;
}

static int read_item(struct reading *reading, struct rfs_json_part part)
{
    struct rfs_json_read json RFS_CLEANUP(rfs_json_read_free) = begin(reading, part);

    if (!rfs_json_read_peek(&json, '{'))
        return rfs_draft_fail(reading->draft, REMEDY, "its layout is not an object");
    return read_members(reading, &json);
}

static int read_layout(struct reading *reading, struct rfs_json_part part)
{
    struct rfs_draft *draft = reading->draft;
    const uint32_t text = rfs_intern_add(reading->layout_texts, reading->data + part.at, part.n);
    int rc;

    rfs_draft_begin(draft, reading->name.data, reading->name.n);
    if (text == RFS_NO_ID)
        return out_of_memory(reading);
    if (text < reading->layout_ids.n)
        return rfs_builder_repeat(reading->builder, draft, reading->layout_ids.data[text]);
    if ((rc = read_item(reading, part)) != 0 ||
        (rc = rfs_builder_add(reading->builder, draft)) != 0)
        return rc;
    return RFS_PUSH(&reading->layout_ids, draft->layout.id) ? 0 : out_of_memory(reading);
}

/* ---- the file ---- */

/* Keeps the key that was just read, which passing over its value forgets. */
static bool keep_name(struct reading *reading, const struct rfs_json_read *json)
{
    reading->name.n = 0;
    while (reading->name.cap <= json->text_n)
        if (!rfs_vec_grow((void **)&reading->name.data, &reading->name.cap, reading->name.cap, 1))
            return false;
    memcpy(reading->name.data, json->text, json->text_n);
    reading->name.n = json->text_n;
    return true;
}

static int read_layouts(struct reading *reading, struct rfs_json_part items)
{
    struct rfs_json_read json RFS_CLEANUP(rfs_json_read_free) = begin(reading, items);
    struct rfs_json_part part;
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(&json, &first)) {
        if (!keep_name(reading, &json))
            return out_of_memory(reading);
        if (!rfs_json_read_part(&json, &part))
            break;
        part.at += items.at;
        rc = read_layout(reading, part);
    }
    return rc ? rc : ended(reading, &json, items.at);
}

static int read_stage(struct reading *reading, struct rfs_json_part item)
{
    struct rfs_json_read json RFS_CLEANUP(rfs_json_read_free) = begin(reading, item);
    int64_t stage = -1;
    bool first = true;

    while (rfs_json_read_member(&json, &first))
        if (!is_key(&json, "stage"))
            rfs_json_read_skip(&json);
        else if (!rfs_json_read_i64(&json, &stage))
            stage = -1;
    if (json.no_memory)
        return out_of_memory(reading);
    if (json.wrong || stage < 0 || stage > (int64_t)UINT32_MAX)
        return invalid(reading, item.at, "the first strategy item has no stage");
    rfs_builder_first_item_stage(reading->builder, (uint32_t)stage);
    return 0;
}

/* Only the stage of the first item matters. */
static int read_strategies(struct reading *reading, struct rfs_json_part items)
{
    struct rfs_json_read json RFS_CLEANUP(rfs_json_read_free) = begin(reading, items);
    struct rfs_json_part part, found = {0, 0};
    bool first = true;

    while (rfs_json_read_member(&json, &first)) {
        const bool counts =
            found.n == 0 || (json.text_n == reading->name.n &&
                             memcmp(json.text, reading->name.data, json.text_n) == 0);
        if (found.n == 0 && !keep_name(reading, &json))
            return out_of_memory(reading);
        if (!rfs_json_read_part(&json, &part))
            break;
        if (counts)
            found = part;
    }
    const int rc = ended(reading, &json, items.at);
    found.at += items.at;
    return rc == 0 && found.n > 0 ? read_stage(reading, found) : rc;
}

/* What the file has by each of the two names; n 0: nothing. */
struct root {
    struct rfs_json_part layouts, strategies;
};

static int find_parts(struct reading *reading, size_t size, struct root *root)
{
    struct rfs_json_read json RFS_CLEANUP(rfs_json_read_free) =
        rfs_json_read_begin(reading->data, size);
    struct rfs_json_part other;
    bool first = true;

    if (!rfs_json_read_peek(&json, '{')) {
        const size_t at = json.at;
        rfs_json_read_skip(&json);
        rfs_json_read_end(&json);
        const int rc = ended(reading, &json, 0);
        return rc ? rc : invalid(reading, at, "not a strategy in JSON: not an object");
    }
    while (rfs_json_read_member(&json, &first))
        rfs_json_read_part(&json, is_key(&json, "parallel_layout_item")     ? &root->layouts
                                  : is_key(&json, "parallel_strategy_item") ? &root->strategies
                                                                            : &other);
    rfs_json_read_end(&json);
    return ended(reading, &json, 0);
}

static int read_part(struct reading *reading, struct rfs_json_part part, const char *not_object,
                     int (*read)(struct reading *, struct rfs_json_part))
{
    if (part.n == 0)
        return 0;
    return reading->data[part.at] == '{' ? read(reading, part)
                                         : invalid(reading, part.at, not_object);
}

int rfs_strategy_read_json(struct rfs_builder *builder, struct rfs_draft *draft, const char *data,
                           size_t size)
{
    struct reading reading RFS_CLEANUP(reading_clear) = {
        .builder = builder,
        .draft = draft,
        .data = data,
        .layout_texts = rfs_intern_new(),
    };
    struct root root = {.layouts = {0, 0}};

    if (reading.layout_texts == NULL)
        return out_of_memory(&reading);
    int rc = find_parts(&reading, size, &root);
    if (rc == 0)
        rc = read_part(&reading, root.strategies, "parallel_strategy_item is not an object",
                       read_strategies);
    return rc == 0 ? read_part(&reading, root.layouts, "parallel_layout_item is not an object",
                               read_layouts)
                   : rc;
}
