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
 * The two large objects grow with the model, so they are passed over, and cJSON reads one item of
 * them at a time.
 */
#include "layout/strategy_doc.h"

#include "base/cleanup.h"
#include "base/intern.h"
#include "base/json_read.h"
#include "base/json_tree.h"
#include "base/json_write.h"
#include "base/order.h"
#include "base/text.h"

#define REMEDY "the file that MindSpore saved as strategy; only those in JSON have names in .json"
/* The memory of one item. A longer one has more numbers than any layout or operator. */
#define ITEM_BYTES ((size_t)16 << 20)

/* ---- reading ---- */

RFS_CLEANUP_OF(free_tree, cJSON *, cJSON_Delete)

/* The file being read; all borrowed but the tables. */
struct reading {
    struct rfs_strategy_doc *doc;
    const char *data;
    struct rfs_error *err;
    struct rfs_intern *names; /* of the items at hand; id = position */
    uint32_t id;              /* of the item at hand */
    bool has_stage;           /* the first operator has one */
    size_t first_at;          /* where in the file that operator is */
};

static int invalid(const struct reading *reading, size_t at, const char *what)
{
    return rfs_fail(reading->err, -EINVAL, RFS_AT(reading->doc->name, at), REMEDY, "%s", what);
}

/*
 * Reports why a walk ended: 0 at the end of its range. BASE is where the range begins in the file.
 */
static int ended(const struct reading *reading, const struct rfs_json_read *json, size_t base)
{
    if (json->no_memory)
        return -ENOMEM;
    return json->wrong
               ? rfs_fail(reading->err, -EINVAL, RFS_AT(reading->doc->name, base + json->at),
                          REMEDY, "not valid JSON: %s", json->wrong)
               : 0;
}

/*
 * Notes a member that is not known, which a document would lose; NAME is that of an item, or NULL.
 */
static void note_unknown(const struct reading *reading, const char *key, const char *name)
{
    rfs_fail(rfs_strategy_doc_lost(reading->doc), -EINVAL, RFS_OF(reading->doc->name, name),
             "the file without it", "this program does not know '%s', and would lose it", key);
}

/* Notes an operator that a document cannot hold: it only prevents writing the file again. */
static void note_node(const struct reading *reading, const char *name, const char *key,
                      const char *what)
{
    rfs_fail(rfs_strategy_doc_lost(reading->doc), -EINVAL, RFS_OF(reading->doc->name, name),
             "the file that MindSpore saved as strategy", "'%s' %s", key, what);
}

/* Notes members of an item that are not among the N known ones. */
static void note_members(const struct reading *reading, const char *name, const cJSON *item,
                         const char *const *known, size_t n)
{
    const cJSON *member;

    if (!cJSON_IsObject(item))
        return;
    cJSON_ArrayForEach(member, item)
    {
        size_t i = 0;
        while (i < n && strcmp(known[i], member->string) != 0)
            i++;
        if (i == n)
            note_unknown(reading, member->string, name);
    }
}

/* ---- one layout ---- */

/* The lists of a layout, and their sizes in the message. */
static const struct {
    const char *key;
    bool required;
    enum rfs_strategy_doc_list list;
} lists[] = {
    {"dev_matrix", true, RFS_STRATEGY_DOC_DEV},
    {"tensor_map", true, RFS_STRATEGY_DOC_MAP},
    {"param_split_shape", false, RFS_STRATEGY_DOC_SPLIT},
    {"indices_offset", false, RFS_STRATEGY_DOC_OFFSETS},
};

/* Numbers of a list; owned, and used again for the next list. */
struct numbers {
    RFS_VEC(int64_t) all;
};

/* Reads the numbers of VALUE, which must be a list of integers. */
static int read_list(const struct rfs_layout_builder *item, const char *key, const cJSON *value,
                     struct numbers *numbers)
{
    const cJSON *element;

    numbers->all.n = 0;
    if (!cJSON_IsArray(value))
        return rfs_layout_fail(item, REMEDY, "%s is not a list of integers", key);
    cJSON_ArrayForEach(element, value)
    {
        int64_t number;
        if (!rfs_json_tree_integer(element, &number))
            return rfs_layout_fail(item, REMEDY, "%s is not a list of integers", key);
        if (!RFS_PUSH(&numbers->all, number))
            return -ENOMEM;
    }
    return 0;
}

/* Refuses numbers that the message cannot hold: they are wrong in any layout. */
static int check_range(struct rfs_layout_builder *item, enum rfs_strategy_doc_list list,
                       int64_t number)
{
    if (list == RFS_STRATEGY_DOC_DEV && (number < 1 || number > UINT32_MAX))
        return rfs_layout_add_dev(item, number);
    if (list == RFS_STRATEGY_DOC_MAP && (number < INT32_MIN || number > INT32_MAX))
        return rfs_layout_add_cut(item, number);
    return 0;
}

static int read_lists(const struct reading *reading, struct rfs_layout_builder *item,
                      const cJSON *from, struct numbers *numbers, Straspb__ParallelLayouts *to)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const cJSON *value = rfs_json_tree_member(from, lists[i].key);
        if (!value && lists[i].required)
            return rfs_layout_fail(item, REMEDY, "it has no %s", lists[i].key);
        numbers->all.n = 0;
        int rc = value ? read_list(item, lists[i].key, value, numbers) : 0;
        for (size_t k = 0; k < numbers->all.n && rc == 0; k++)
            rc = check_range(item, lists[i].list, numbers->all.data[k]);
        if (rc)
            return rc;
        if (!rfs_strategy_doc_add_list(reading->doc, to, lists[i].list, numbers->all.data,
                                       numbers->all.n))
            return -ENOMEM;
    }
    return 0;
}

static int read_shape(const struct reading *reading, const struct rfs_layout_builder *item,
                      const cJSON *from, struct numbers *numbers,
                      struct rfs_strategy_doc_shape *shape)
{
    const cJSON *value = rfs_json_tree_member(from, "tensor_shape");

    shape->flat = true;
    if (!value)
        return 0;
    const int rc = read_list(item, "tensor_shape", value, numbers);
    if (rc)
        return rc;
    if (numbers->all.n > RFS_MAX_CUTS)
        return rfs_layout_fail(item, NULL, "tensor_shape has more than %d entries", RFS_MAX_CUTS);
    shape->known = true;
    shape->n = (uint32_t)numbers->all.n;
    shape->dims = rfs_strategy_doc_alloc(reading->doc, shape->n * sizeof *shape->dims);
    if (shape->dims && shape->n > 0)
        memcpy(shape->dims, numbers->all.data, shape->n * sizeof *shape->dims);
    return shape->dims ? 0 : -ENOMEM;
}

static int read_number(const struct rfs_layout_builder *item, const cJSON *from, const char *key,
                       int32_t *out)
{
    const cJSON *value = rfs_json_tree_member(from, key);
    int64_t number;

    if (!value)
        return rfs_layout_fail(item, REMEDY, "it has no %s", key);
    if (!rfs_json_tree_integer(value, &number) || number < INT32_MIN || number > INT32_MAX)
        return rfs_layout_fail(item, REMEDY, "%s is not an integer of 32 bits", key);
    *out = (int32_t)number;
    return 0;
}

static int read_layout(struct reading *reading, const char *name, const cJSON *from)
{
    static const char *const members[] = {
        "dev_matrix",     "tensor_map", "tensor_shape",          "param_split_shape",
        "indices_offset", "field",      "opt_weight_shard_step", "opt_weight_shard_size"};
    RFS_CLEANUP(rfs_layout_end)
    struct rfs_layout_builder item = {.file = reading->doc->name, .err = reading->err};
    const size_t at = reading->doc->map.n_parallel_layout_item;
    struct numbers numbers = {{0}};

    rfs_layout_begin(&item, name, strlen(name));
    if (!cJSON_IsObject(from))
        return rfs_layout_fail(&item, REMEDY, "its layout is not an object");
    Straspb__ParallelLayouts *to = rfs_strategy_doc_add_param(reading->doc, name, strlen(name));
    if (!to)
        return -ENOMEM;
    note_members(reading, name, from, members, sizeof members / sizeof *members);
    const int rc = read_lists(reading, &item, from, &numbers, to)
                       ?: read_shape(reading, &item, from, &numbers, &reading->doc->shapes[at])
                       ?: read_number(&item, from, "field", &to->field)
                       ?: read_number(&item, from, "opt_weight_shard_step",
                                      &to->opt_weight_shard_step)
                       ?: read_number(&item, from, "opt_weight_shard_size",
                                      &to->opt_weight_shard_size);
    free(numbers.all.data);
    return rc;
}

/* ---- one operator ---- */

/* Reads the cuts of each input. False without memory; what is no list of integers is noted. */
static bool read_inputs(const struct reading *reading, const char *name, const cJSON *from,
                        Straspb__ParallelStrategys *to)
{
    const cJSON *input, *cut;
    RFS_VEC(uint32_t) cuts = {0};
    bool ok = true, right = true;

    if (from && !cJSON_IsArray(from))
        note_node(reading, name, "parallel_strategy", "is not a list");
    if (!cJSON_IsArray(from))
        return true;
    cJSON_ArrayForEach(input, from)
    {
        int64_t number;
        cuts.n = 0;
        right &= cJSON_IsArray(input);
        cJSON_ArrayForEach(cut, input)
        {
            right &= rfs_json_tree_integer(cut, &number) && number >= 0 && number <= UINT32_MAX;
            ok &= RFS_PUSH(&cuts, right ? (uint32_t)number : 0);
        }
        ok = ok && rfs_strategy_doc_add_input(reading->doc, to, cuts.data, cuts.n);
        if (!ok)
            break;
    }
    free(cuts.data);
    if (!right)
        note_node(reading, name, "parallel_strategy", "is not a list of integers");
    return ok;
}

/* Returns the stage of an operator, or -1. */
static int64_t read_stage(const cJSON *from)
{
    int64_t stage;

    return rfs_json_tree_integer(rfs_json_tree_member(from, "stage"), &stage) && stage >= 0 &&
                   stage <= UINT32_MAX
               ? stage
               : -1;
}

static int read_node(struct reading *reading, const char *name, const cJSON *from)
{
    static const char *const members[] = {"stage", "parallel_strategy"};
    const int64_t stage = read_stage(from);
    Straspb__ParallelStrategys *to = rfs_strategy_doc_add_node(reading->doc, name, strlen(name),
                                                               stage < 0 ? 0 : (uint32_t)stage);

    if (!to)
        return -ENOMEM;
    note_members(reading, name, from, members, sizeof members / sizeof *members);
    if (stage < 0)
        note_node(reading, name, "stage", "is not there, or is not a stage");
    if (reading->id == 0)
        reading->has_stage = stage >= 0;
    return read_inputs(reading, name, rfs_json_tree_member(from, "parallel_strategy"), to)
               ? 0
               : -ENOMEM;
}

/* ---- the file ---- */

/* A kind of item: how one is read, and how the last one is put at another place. */
struct kind {
    int (*read)(struct reading *reading, const char *name, const cJSON *from);
    void (*move_last)(struct rfs_strategy_doc *doc, uint32_t to);
};

static void move_last_node(struct rfs_strategy_doc *doc, uint32_t to)
{
    const size_t last = --doc->map.n_parallel_strategy_item;

    doc->map.parallel_strategy_item[to] = doc->map.parallel_strategy_item[last];
}

static void move_last_layout(struct rfs_strategy_doc *doc, uint32_t to)
{
    const size_t last = --doc->map.n_parallel_layout_item;

    doc->map.parallel_layout_item[to] = doc->map.parallel_layout_item[last];
    doc->shapes[to] = doc->shapes[last];
    doc->shapes[last] = (struct rfs_strategy_doc_shape){0};
}

static const struct kind nodes = {read_node, move_last_node};
static const struct kind layouts = {read_layout, move_last_layout};

static bool has_room(struct rfs_strategy_doc *doc)
{
    const size_t n = doc->map.n_parallel_strategy_item, m = doc->map.n_parallel_layout_item;
    const bool full = n == doc->most_nodes || m == doc->most_params;

    return !full || rfs_strategy_doc_reserve(doc, n + 16, m + 16);
}

static int read_item(struct reading *reading, struct rfs_json_part part, const struct kind *kind)
{
    RFS_CLEANUP(free_tree) cJSON *tree = NULL;
    const char *name = rfs_intern_text(reading->names, reading->id);

    if (!has_room(reading->doc))
        return -ENOMEM;
    const int rc = rfs_json_tree_parse_valid(reading->data + part.at, part.n, ITEM_BYTES, &tree);
    if (rc == -EFBIG)
        return rfs_fail(reading->err, -EINVAL, RFS_OF(reading->doc->name, name), REMEDY,
                        "its item is %zu bytes long, more than any strategy needs", part.n);
    return rc ?: kind->read(reading, name, tree);
}

static int read_items(struct reading *reading, struct rfs_json_part items, const struct kind *kind)
{
    RFS_CLEANUP(rfs_json_read_free)
    struct rfs_json_read json = rfs_json_read_begin(reading->data + items.at, items.n);
    struct rfs_json_part part;
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(&json, &first)) {
        const uint32_t known = rfs_intern_count(reading->names);
        reading->id = rfs_intern_add(reading->names, json.text, json.text_n);
        if (reading->id == RFS_NO_ID)
            return -ENOMEM;
        if (!rfs_json_read_part(&json, &part))
            break;
        part.at += items.at;
        if (reading->id == 0)
            reading->first_at = part.at;
        rc = read_item(reading, part, kind);
        if (rc == 0 && reading->id < known)
            kind->move_last(reading->doc, reading->id);
    }
    return rc ?: ended(reading, &json, items.at);
}

/* Reads one of the large objects, if the file has it. */
static int read_object(struct reading *reading, struct rfs_json_part part, const char *not_object,
                       const struct kind *kind)
{
    if (part.n == 0)
        return 0;
    if (reading->data[part.at] != '{')
        return invalid(reading, part.at, not_object);
    reading->names = rfs_intern_new();
    const int rc = reading->names ? read_items(reading, part, kind) : -ENOMEM;
    rfs_intern_free(reading->names);
    reading->names = NULL;
    return rc;
}

/* The parts of the file; n 0: not there. */
struct root {
    struct rfs_json_part layouts, strategies, stage;
};

static int find_parts(struct reading *reading, size_t size, struct root *root)
{
    RFS_CLEANUP(rfs_json_read_free)
    struct rfs_json_read json = rfs_json_read_begin(reading->data, size);
    bool first = true;

    if (!rfs_json_read_peek(&json, '{')) {
        const size_t at = json.at;
        rfs_json_read_skip(&json);
        rfs_json_read_end(&json);
        return ended(reading, &json, 0)
                   ?: invalid(reading, at, "not a strategy in JSON: not an object");
    }
    while (rfs_json_read_member(&json, &first)) {
        struct rfs_json_part *part =
            rfs_json_read_is(&json, "parallel_layout_item")     ? &root->layouts
            : rfs_json_read_is(&json, "parallel_strategy_item") ? &root->strategies
            : rfs_json_read_is(&json, "current_stage")          ? &root->stage
                                                                : NULL;
        if (!part)
            note_unknown(reading, json.text, NULL);
        if (part)
            rfs_json_read_part(&json, part);
        else
            rfs_json_read_skip(&json);
    }
    rfs_json_read_end(&json);
    return ended(reading, &json, 0);
}

static void read_current_stage(struct reading *reading, struct rfs_json_part part)
{
    RFS_CLEANUP(rfs_json_read_free)
    struct rfs_json_read json = rfs_json_read_begin(reading->data + part.at, part.n);
    uint64_t stage = 0;

    if (part.n > 0 && (!rfs_json_read_u64(&json, &stage) || stage > UINT32_MAX))
        note_node(reading, NULL, "current_stage", "is not an integer of 32 bits");
    else if (part.n > 0)
        reading->doc->map.current_stage = (uint32_t)stage;
}

int rfs_strategy_doc_parse_json(struct rfs_strategy_doc *doc, const char *data, size_t size,
                                struct rfs_error *err)
{
    struct reading reading = {.doc = doc, .data = data, .err = err, .has_stage = true};
    struct root root = {.layouts = {0, 0}};
    int rc = find_parts(&reading, size, &root);

    if (rc == 0) {
        read_current_stage(&reading, root.stage);
        rc = read_object(&reading, root.strategies, "parallel_strategy_item is not an object",
                         &nodes);
    }
    if (rc == 0 && !reading.has_stage)
        rc = invalid(&reading, reading.first_at, "the first strategy item has no stage");
    return rc
               ?: read_object(&reading, root.layouts, "parallel_layout_item is not an object",
                              &layouts);
}

/* ---- writing ---- */

/* A file being written: as Python writes it, or as the compiler does. */
struct text {
    struct rfs_json_write json;
    enum rfs_json_form form;
};

/* Puts a list of N numbers of any type. */
#define PUT_LIST(text, key, list, n)                                                               \
    do {                                                                                           \
        rfs_json_array(&(text)->json, key, (text)->form);                                          \
        for (size_t list_i = 0; list_i < (n); list_i++)                                            \
            rfs_json_put_i64(&(text)->json, NULL, (list)[list_i]);                                 \
        rfs_json_end(&(text)->json);                                                               \
    } while (0)

/* Puts the numbers of the first message, if there are any. */
#define PUT_NUMBERS(text, key, messages, n)                                                        \
    do {                                                                                           \
        if ((n) > 0 && (messages)[0]->n_dim > 0)                                                   \
            PUT_LIST(text, key, (messages)[0]->dim, (messages)[0]->n_dim);                         \
    } while (0)

/* Puts the tensor map, flattened. */
static void put_map(struct text *text, const Straspb__ParallelLayouts *layout)
{
    rfs_json_array(&text->json, "tensor_map", text->form);
    for (size_t i = 0; i < layout->n_tensor_map; i++)
        for (size_t k = 0; k < layout->tensor_map[i]->n_dim; k++)
            rfs_json_put_i64(&text->json, NULL, layout->tensor_map[i]->dim[k]);
    rfs_json_end(&text->json);
}

/* Puts members in the order of their names, which is the compiler's. */
static void put_param(struct text *text, const struct rfs_strategy_doc *doc, size_t i)
{
    const Straspb__ParallelLayouts *layout = doc->map.parallel_layout_item[i]->parallel_layouts;
    const struct rfs_strategy_doc_shape *shape = &doc->shapes[i];

    PUT_LIST(text, "dev_matrix", layout->dev_matrix[0]->dim, layout->dev_matrix[0]->n_dim);
    rfs_json_put_i64(&text->json, "field", layout->field);
    PUT_NUMBERS(text, "indices_offset", layout->indices_offset, layout->n_indices_offset);
    rfs_json_put_i64(&text->json, "opt_weight_shard_size", layout->opt_weight_shard_size);
    rfs_json_put_i64(&text->json, "opt_weight_shard_step", layout->opt_weight_shard_step);
    PUT_NUMBERS(text, "param_split_shape", layout->param_split_shape, layout->n_param_split_shape);
    put_map(text, layout);
    if (shape->known)
        PUT_LIST(text, "tensor_shape", shape->dims, shape->n);
}

static void put_node(struct text *text, const struct rfs_strategy_doc *doc, size_t i)
{
    const Straspb__ParallelStrategys *node = doc->map.parallel_strategy_item[i]->parallel_strategys;

    rfs_json_array(&text->json, "parallel_strategy", text->form);
    for (size_t k = 0; k < node->n_parallel_strategy; k++)
        PUT_LIST(text, NULL, node->parallel_strategy[k]->dim, node->parallel_strategy[k]->n_dim);
    rfs_json_end(&text->json);
    rfs_json_put_u64(&text->json, "stage", node->stage);
}

/* One of the two objects of a file. */
struct object {
    const char *key;
    size_t n;
    const char *(*name)(const struct rfs_strategy_doc *doc, size_t i);
    void (*put)(struct text *text, const struct rfs_strategy_doc *doc, size_t i);
};

static const char *name_of_param(const struct rfs_strategy_doc *doc, size_t i)
{
    return rfs_strategy_doc_text(doc->map.parallel_layout_item[i]->param_name);
}

static const char *name_of_node(const struct rfs_strategy_doc *doc, size_t i)
{
    return rfs_strategy_doc_text(doc->map.parallel_strategy_item[i]->node_name);
}

struct named {
    const char *name;
    size_t item;
};

RFS_COMPARE(by_name, struct named, x, y, strcmp(x->name, y->name))

static int put_object(struct text *text, const struct rfs_strategy_doc *doc,
                      const struct object *object, bool sorted, struct rfs_error *err)
{
    RFS_FREE struct named *items = calloc(object->n + 1, sizeof *items);
    struct rfs_intern *places = rfs_intern_new(); /* id = place among the items */
    bool ok = items && places;
    size_t n = 0;

    for (size_t i = 0; ok && i < object->n; i++) {
        const char *name = object->name(doc, i);
        const uint32_t place = rfs_intern_add(places, name, strlen(name));
        ok = place != RFS_NO_ID;
        if (ok)
            items[place] = (struct named){name, i};
        n = ok && place == n ? n + 1 : n;
    }
    rfs_intern_free(places);
    if (!ok)
        return rfs_fail_memory(err);
    if (sorted)
        RFS_SORT(items, n, by_name);
    rfs_json_object(&text->json, object->key, text->form);
    for (size_t i = 0; i < n; i++) {
        rfs_json_object(&text->json, items[i].name, text->form);
        object->put(text, doc, items[i].item);
        rfs_json_end(&text->json);
    }
    rfs_json_end(&text->json);
    return 0;
}

static int check_names(const struct rfs_strategy_doc *doc, const struct object *object,
                       struct rfs_error *err)
{
    for (size_t i = 0; i < object->n; i++) {
        const char *name = object->name(doc, i);
        if (!rfs_text_is_utf8(name, strlen(name)))
            return rfs_fail(err, -EINVAL, RFS_OF(doc->name, name),
                            "a protobuf file, which holds any name",
                            "its name is not UTF-8, so JSON cannot hold it");
    }
    return 0;
}

static int check_nesting(const struct rfs_strategy_doc *doc, struct rfs_error *err)
{
    for (size_t i = 0; i < doc->map.n_parallel_layout_item; i++) {
        const Straspb__ParallelLayouts *layout = doc->map.parallel_layout_item[i]->parallel_layouts;
        bool nested = false;
        for (size_t k = 0; layout->n_tensor_map > 1 && k < layout->n_tensor_map; k++)
            nested |= layout->tensor_map[k]->n_dim > 1;
        if (nested && !doc->shapes[i].known)
            return rfs_fail(err, -EINVAL, RFS_OF(doc->name, name_of_param(doc, i)),
                            "--tree SRC with the checkpoint, which has it",
                            "several device axes cut one of its axes: JSON then needs the tensor's "
                            "shape, and protobuf does not have it");
    }
    return 0;
}

int rfs_strategy_doc_json(const struct rfs_strategy_doc *doc, bool merged, char **data,
                          size_t *size, struct rfs_error *err)
{
    const struct object params = {"parallel_layout_item", doc->map.n_parallel_layout_item,
                                  name_of_param, put_param};
    const struct object operators = {"parallel_strategy_item", doc->map.n_parallel_strategy_item,
                                     name_of_node, put_node};
    struct rfs_bytes bytes = {0};
    struct text text = {
        {.bytes = &bytes, .escapes = merged ? RFS_JSON_ASCII : RFS_JSON_UTF8},
        merged ? RFS_JSON_SPACED : RFS_JSON_TIGHT,
    };
    int rc = rfs_strategy_doc_check_lost(doc, err)
                 ?: check_names(doc, &params, err)
                 ?: check_names(doc, &operators, err)
                 ?: check_nesting(doc, err);

    *data = NULL;
    if (rc)
        return rc;
    rfs_json_object(&text.json, NULL, text.form);
    rfs_json_put_u64(&text.json, "current_stage", doc->map.current_stage);
    rc = put_object(&text, doc, merged ? &operators : &params, !merged, err)
             ?: put_object(&text, doc, merged ? &params : &operators, !merged, err);
    rfs_json_end(&text.json);
    if (rc == 0 && !rfs_bytes_put(&bytes, "", 1))
        rc = rfs_fail_memory(err);
    if (rc) {
        rfs_bytes_free(&bytes);
        return rc;
    }
    *data = (char *)bytes.data;
    *size = bytes.n - 1;
    return 0;
}
