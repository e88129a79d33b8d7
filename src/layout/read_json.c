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
 * tensor_map is flat even where the layout is nested; tensor_shape is expanded in the same way
 * then, and the full shape otherwise. Of keys given twice the last one counts, in the place of the
 * first, as in Python. Source: _build_json_strategy of MindSpore 2.10, which does not read
 * tensor_shape.
 *
 * No tree is built: the text is passed over to find its parts, and each part read. Layouts with the
 * same text are read once. So it takes the texts of distinct layouts, and time in the file's bytes.
 */
#include "base/cleanup.h"
#include "base/intern.h"
#include "base/json_read.h"
#include "base/vec.h"
#include "layout/builder.h"
#include "layout/document.h"

#define REMEDY "the file that MindSpore saved as strategy; only those in JSON have names in .json"

/* The number of a layout in the strategy, and in the document. */
struct known_layout {
    uint32_t id, written;
};

/* The file being read; all borrowed but the tables and the name. */
struct reading {
    struct rfs_strategy_builder *builder;
    struct rfs_layout_builder *item;
    const char *data;
    struct rfs_intern *layout_texts; /* id = position in known */
    RFS_VEC(struct known_layout) known;
    RFS_VEC(char) name; /* of the item at hand; a NUL follows it */
};

static void reading_clear(struct reading *reading)
{
    rfs_intern_free(reading->layout_texts);
    free(reading->known.data);
    free(reading->name.data);
}

static int invalid(const struct reading *reading, size_t at, const char *what)
{
    return rfs_fail(reading->item->err, -EINVAL, RFS_AT(reading->item->file, at), REMEDY, "%s",
                    what);
}

static int out_of_memory(const struct reading *reading)
{
    return rfs_fail_memory_of(reading->item->err, reading->item->file);
}

/* Why a walk ended: 0 at the end of its range. BASE: where the range begins in the file. */
static int ended(const struct reading *reading, const struct rfs_json_read *json, size_t base)
{
    if (json->no_memory)
        return out_of_memory(reading);
    return json->wrong
               ? rfs_fail(reading->item->err, -EINVAL, RFS_AT(reading->item->file, base + json->at),
                          REMEDY, "not valid JSON: %s", json->wrong)
               : 0;
}

static struct rfs_json_read begin(const struct reading *reading, struct rfs_json_part part)
{
    return rfs_json_read_begin(reading->data + part.at, part.n);
}

/*
 * Passes a member that is not known, which a document would lose; NAME is that of an item, or NULL.
 */
static void pass_unknown(const struct reading *reading, struct rfs_json_read *json,
                         const char *name)
{
    struct rfs_layout_builder *item = reading->item;

    rfs_fail(rfs_strategy_doc_lost(item->doc), -EINVAL, RFS_OF(item->file, name),
             "the file without it", "this program does not know '%s', and would lose it",
             json->text);
    rfs_json_read_skip(json);
}

/* ---- one layout, which is known to be JSON ---- */

/*
 * A key, and the handling of its value: integers of a list one by one, after the earlier ones are
 * dropped.
 */
struct member {
    const char *key;
    bool required;
    void (*forget)(struct rfs_layout_builder *item); /* NULL: it is no list, but one integer */
    int (*add)(struct rfs_layout_builder *item, int64_t value);
};

/*
 * Entries beyond those of the last list are zero, as if it were the only one: the digest is of
 * whole arrays.
 */
static void no_dev(struct rfs_layout_builder *item)
{
    memset(item->layout.dev, 0, sizeof item->layout.dev);
    item->layout.n_dev = 0;
}

static void no_map(struct rfs_layout_builder *item)
{
    memset(item->layout.start, 0, sizeof item->layout.start);
    memset(item->layout.map, 0, sizeof item->layout.map);
    item->layout.n_axes = 0;
}

static int add_map(struct rfs_layout_builder *item, int64_t value)
{
    const int rc = rfs_layout_add_axis(item);

    return rc == 0 ? rfs_layout_add_cut(item, value) : rc;
}

static void no_expanded(struct rfs_layout_builder *item)
{
    memset(item->layout.expanded, 0, sizeof item->layout.expanded);
    item->layout.n_expanded = 0;
    item->has_shape = true;
}

static void no_rows(struct rfs_layout_builder *item)
{
    item->rows.n = 0;
}

static void no_offsets(struct rfs_layout_builder *item)
{
    item->offsets.n = 0;
}

static int set_field(struct rfs_layout_builder *item, int64_t value)
{
    item->field = value;
    return 0;
}

static int set_step(struct rfs_layout_builder *item, int64_t value)
{
    item->opt_step = value;
    return 0;
}

static int set_size(struct rfs_layout_builder *item, int64_t value)
{
    item->opt_size = value;
    return 0;
}

static const struct member members[] = {
    {"dev_matrix", true, no_dev, rfs_layout_add_dev},
    {"tensor_map", true, no_map, add_map},
    {"tensor_shape", false, no_expanded, rfs_layout_add_expanded},
    {"param_split_shape", false, no_rows, rfs_layout_add_rows},
    {"indices_offset", false, no_offsets, rfs_layout_add_offset},
    {"field", true, NULL, set_field},
    {"opt_weight_shard_step", true, NULL, set_step},
    {"opt_weight_shard_size", true, NULL, set_size},
};

enum { MEMBERS = sizeof members / sizeof *members };

static int read_value(struct reading *reading, struct rfs_json_read *json,
                      const struct member *member)
{
    struct rfs_layout_builder *item = reading->item;
    bool first = true;
    int64_t value;
    int rc = 0;

    if (!member->forget)
        return rfs_json_read_i64(json, &value)
                   ? member->add(item, value)
                   : rfs_layout_fail(item, REMEDY, "%s is not an integer", member->key);
    member->forget(item);
    while (rc == 0 && rfs_json_read_element(json, &first))
        rc = rfs_json_read_i64(json, &value) ? member->add(item, value) : 0;
    return rc == 0 && json->wrong
               ? rfs_layout_fail(item, REMEDY, "%s is not a list of integers", member->key)
               : rc;
}

static int read_members(struct reading *reading, struct rfs_json_read *json)
{
    unsigned seen = 0;
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(json, &first)) {
        unsigned i = 0;
        while (i < MEMBERS && !rfs_json_read_is(json, members[i].key))
            i++;
        seen |= 1u << i;
        if (i < MEMBERS)
            rc = read_value(reading, json, &members[i]);
        else
            pass_unknown(reading, json, reading->name.data);
    }
    if (rc == 0 && json->wrong)
        return out_of_memory(reading);
    for (unsigned i = 0; rc == 0 && i < MEMBERS; i++)
        if (members[i].required && !(seen >> i & 1))
            rc = rfs_layout_fail(reading->item, REMEDY, "it has no %s", members[i].key);
    return rc;
}

static int read_item(struct reading *reading, struct rfs_json_part part)
{
    struct rfs_json_read json RFS_CLEANUP(rfs_json_read_free) = begin(reading, part);

    if (!rfs_json_read_peek(&json, '{'))
        return rfs_layout_fail(reading->item, REMEDY, "its layout is not an object");
    return read_members(reading, &json);
}

static int read_layout(struct reading *reading, struct rfs_json_part part)
{
    struct rfs_layout_builder *item = reading->item;
    const uint32_t text = rfs_intern_add(reading->layout_texts, reading->data + part.at, part.n);
    int rc;

    rfs_layout_begin(item, reading->name.data, reading->name.n);
    if (text == RFS_NO_ID)
        return out_of_memory(reading);
    if (text < reading->known.n) {
        item->written = reading->known.data[text].written;
        return rfs_strategy_builder_repeat(reading->builder, item, reading->known.data[text].id);
    }
    item->flat = true;
    if ((rc = read_item(reading, part)) != 0 ||
        (rc = rfs_strategy_builder_add(reading->builder, item)) != 0)
        return rc;
    const struct known_layout known = {item->layout.id, item->written};
    return RFS_PUSH(&reading->known, known) ? 0 : out_of_memory(reading);
}

/* ---- the file ---- */

/* Keeps the key that was just read, which passing over its value forgets. */
static bool keep_name(struct reading *reading, const struct rfs_json_read *json)
{
    reading->name.n = 0;
    while (reading->name.cap <= json->text_n)
        if (!rfs_vec_grow((void **)&reading->name.data, &reading->name.cap, reading->name.cap, 1))
            return false;
    memcpy(reading->name.data, json->text, json->text_n + 1);
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

static int read_stage(struct reading *reading, struct rfs_json_part part)
{
    struct rfs_json_read json RFS_CLEANUP(rfs_json_read_free) = begin(reading, part);
    int64_t stage = -1;
    bool first = true;

    while (rfs_json_read_member(&json, &first))
        if (!rfs_json_read_is(&json, "stage"))
            rfs_json_read_skip(&json);
        else if (!rfs_json_read_i64(&json, &stage))
            stage = -1;
    if (json.no_memory)
        return out_of_memory(reading);
    if (json.wrong || stage < 0 || stage > (int64_t)UINT32_MAX)
        return invalid(reading, part.at, "the first strategy item has no stage");
    rfs_strategy_builder_first_item_stage(reading->builder, (uint32_t)stage);
    return 0;
}

/* An operator, for the document: errors in it only prevent writing it again. */
static int lose_node(const struct reading *reading, const char *name, const char *key,
                     const char *what)
{
    rfs_fail(rfs_strategy_doc_lost(reading->item->doc), -EINVAL, RFS_OF(reading->item->file, name),
             "the file that MindSpore saved as strategy", "'%s' %s", key, what);
    return 0;
}

/* The lists of an operator; false when it is not one of lists of integers, or without memory. */
static bool keep_inputs(struct rfs_strategy_doc *doc, struct rfs_json_read *json, bool *no_memory)
{
    bool first = true;

    *no_memory = !rfs_strategy_doc_node(doc);
    while (!*no_memory && rfs_json_read_element(json, &first)) {
        bool first_cut = true;
        int64_t cut;
        *no_memory = !rfs_strategy_doc_input(doc);
        while (!*no_memory && rfs_json_read_element(json, &first_cut))
            *no_memory = rfs_json_read_i64(json, &cut) && !rfs_strategy_doc_cut(doc, cut);
    }
    *no_memory |= json->no_memory;
    return !*no_memory && !json->wrong;
}

static int keep_node(struct reading *reading, uint32_t id, struct rfs_json_part part)
{
    struct rfs_json_read json RFS_CLEANUP(rfs_json_read_free) = begin(reading, part);
    struct rfs_strategy_doc *doc = reading->item->doc;
    const char *name = rfs_intern_text(doc->pool, id);
    bool first = true, no_memory = !rfs_strategy_doc_node(doc);
    int64_t stage = -1;

    while (!no_memory && rfs_json_read_member(&json, &first)) {
        if (rfs_json_read_is(&json, "stage")) {
            if (!rfs_json_read_i64(&json, &stage))
                return lose_node(reading, name, "stage", "is not an integer");
        } else if (rfs_json_read_is(&json, "parallel_strategy")) {
            const bool list = rfs_json_read_peek(&json, '[');
            if (!keep_inputs(doc, &json, &no_memory) && !no_memory)
                return lose_node(reading, name, "parallel_strategy",
                                 list ? "is not a list of integers" : "is not a list");
        } else {
            pass_unknown(reading, &json, name);
        }
    }
    if (no_memory || json.no_memory)
        return out_of_memory(reading);
    if (stage < 0 || stage > (int64_t)UINT32_MAX)
        return lose_node(reading, name, "stage", "is not there, or is not a stage");
    return rfs_strategy_doc_node_end(doc, id, (uint32_t)stage) ? 0 : out_of_memory(reading);
}

/* A strategy has the stage of the first item only. */
static int read_strategies(struct reading *reading, struct rfs_json_part items)
{
    struct rfs_json_read json RFS_CLEANUP(rfs_json_read_free) = begin(reading, items);
    struct rfs_strategy_doc *doc = reading->item->doc;
    struct rfs_json_part part, found = {0, 0};
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(&json, &first)) {
        const bool counts =
            found.n == 0 || (json.text_n == reading->name.n &&
                             memcmp(json.text, reading->name.data, json.text_n) == 0);
        const uint32_t id = doc ? rfs_intern_add(doc->pool, json.text, json.text_n) : 0;
        if ((found.n == 0 && !keep_name(reading, &json)) || id == RFS_NO_ID)
            return out_of_memory(reading);
        if (!rfs_json_read_part(&json, &part))
            break;
        part.at += items.at;
        if (counts)
            found = part;
        rc = doc ? keep_node(reading, id, part) : 0;
    }
    if (rc == 0)
        rc = ended(reading, &json, items.at);
    return rc == 0 && found.n > 0 ? read_stage(reading, found) : rc;
}

/* The items of each name in the file; n 0: none. */
struct root {
    struct rfs_json_part layouts, strategies, stage;
};

static int find_parts(struct reading *reading, size_t size, struct root *root)
{
    struct rfs_json_read json RFS_CLEANUP(rfs_json_read_free) =
        rfs_json_read_begin(reading->data, size);
    bool first = true;

    if (!rfs_json_read_peek(&json, '{')) {
        const size_t at = json.at;
        rfs_json_read_skip(&json);
        rfs_json_read_end(&json);
        const int rc = ended(reading, &json, 0);
        return rc ? rc : invalid(reading, at, "not a strategy in JSON: not an object");
    }
    while (rfs_json_read_member(&json, &first)) {
        struct rfs_json_part *part =
            rfs_json_read_is(&json, "parallel_layout_item")     ? &root->layouts
            : rfs_json_read_is(&json, "parallel_strategy_item") ? &root->strategies
            : rfs_json_read_is(&json, "current_stage")          ? &root->stage
                                                                : NULL;
        if (part)
            rfs_json_read_part(&json, part);
        else
            pass_unknown(reading, &json, NULL);
    }
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

/* Only a document has it. */
static void read_current_stage(struct reading *reading, struct rfs_json_part part)
{
    struct rfs_json_read json RFS_CLEANUP(rfs_json_read_free) = begin(reading, part);
    struct rfs_strategy_doc *doc = reading->item->doc;

    if (doc && part.n > 0 && !rfs_json_read_i64(&json, &doc->current_stage))
        lose_node(reading, NULL, "current_stage", "is not an integer");
}

static int read_file(struct reading *reading, size_t size)
{
    struct root root = {.layouts = {0, 0}};
    int rc = find_parts(reading, size, &root);

    if (rc == 0)
        read_current_stage(reading, root.stage);
    if (rc == 0)
        rc = read_part(reading, root.strategies, "parallel_strategy_item is not an object",
                       read_strategies);
    return rc == 0 ? read_part(reading, root.layouts, "parallel_layout_item is not an object",
                               read_layouts)
                   : rc;
}

int rfs_strategy_read_json(struct rfs_strategy_builder *builder, struct rfs_layout_builder *item,
                           const char *data, size_t size)
{
    struct reading reading RFS_CLEANUP(reading_clear) = {
        .builder = builder,
        .item = item,
        .data = data,
        .layout_texts = rfs_intern_new(),
    };

    if (reading.layout_texts == NULL)
        return out_of_memory(&reading);
    const int rc = read_file(&reading, size);
    struct rfs_strategy_doc *doc = item->doc;
    if (rc == 0 && doc &&
        (!rfs_strategy_doc_once(doc, &doc->nodes) || !rfs_strategy_doc_once(doc, &doc->params)))
        return out_of_memory(&reading);
    return rc;
}
