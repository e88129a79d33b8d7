/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy files in protobuf (proto/node_strategy.proto).
 *
 *   08 current_stage
 *   12 n ParallelStrategyItem { 0a n node_name  12 n { 08 stage  12 n {08 dim …} … } }   per operator
 *   1a n ParallelLayoutItem   { 0a n param_name 12 n ParallelLayouts }                per parameter
 *
 *   ParallelLayouts { 0a n {08 dim …}   the device matrix
 *                     12 n {08 dim …} … the tensor map: one for all axes, or one for each axis
 *                     1a n {08 dim …}   a manual split: rows of each piece; empty when there is none
 *                     22 n {08 dim …}   and what is subtracted from indices there
 *                     28 field  30 opt_weight_shard_step  38 opt_weight_shard_size }
 *
 * More than one tensor map message means that each is an axis, empty ones dropped (a tensor of one
 * axis gets an extra empty one, so that there is more than one). The compiler writes layouts in
 * hash order. Source: _build_protobuf_strategy and _convert_to_list of MindSpore 2.10.
 *
 * Nothing is unpacked: messages are scanned, and their fields go into the strategy at once.
 */
#include "base/cleanup.h"
#include "base/intern.h"
#include "base/proto_read.h"
#include "base/text.h"
#include "layout/builder.h"
#include "layout/document.h"
#include "layout/strategy_proto.h"

#define REMEDY "the file that MindSpore saved as strategy; JSON strategies have names in .json"

static const struct rfs_proto_shape dims_shape = {{{RFS_DIMS_DIM, RFS_PROTO_NUMBERS, false, NULL}}};

static const struct rfs_proto_shape layouts_shape = {{
    {RFS_LAYOUTS_DEV, RFS_PROTO_MESSAGES, false, &dims_shape},
    {RFS_LAYOUTS_MAP, RFS_PROTO_MESSAGES, false, &dims_shape},
    {RFS_LAYOUTS_SPLIT, RFS_PROTO_MESSAGES, false, &dims_shape},
    {RFS_LAYOUTS_OFFSETS, RFS_PROTO_MESSAGES, false, &dims_shape},
    {RFS_LAYOUTS_FIELD, RFS_PROTO_NUMBER, true, NULL},
    {RFS_LAYOUTS_STEP, RFS_PROTO_NUMBER, true, NULL},
    {RFS_LAYOUTS_SIZE, RFS_PROTO_NUMBER, true, NULL},
}};

static const struct rfs_proto_shape layout_item_shape = {{
    {RFS_ITEM_NAME, RFS_PROTO_BYTES, true, NULL},
    {RFS_ITEM_VALUE, RFS_PROTO_MESSAGES, true, &layouts_shape},
}};

static const struct rfs_proto_shape strategys_shape = {{
    {RFS_STRATEGYS_STAGE, RFS_PROTO_NUMBER, true, NULL},
    {RFS_STRATEGYS_CUTS, RFS_PROTO_MESSAGES, false, &dims_shape},
}};

static const struct rfs_proto_shape strategy_item_shape = {{
    {RFS_ITEM_NAME, RFS_PROTO_BYTES, true, NULL},
    {RFS_ITEM_VALUE, RFS_PROTO_MESSAGES, true, &strategys_shape},
}};

static const struct rfs_proto_shape strategy_shape = {{
    {RFS_STRATEGY_STAGE, RFS_PROTO_NUMBER, true, NULL},
    {RFS_STRATEGY_NODES, RFS_PROTO_MESSAGES, false, &strategy_item_shape},
    {RFS_STRATEGY_PARAMS, RFS_PROTO_MESSAGES, false, &layout_item_shape},
}};

/* A name and its item, of either kind. */
struct item {
    struct rfs_proto name, value;
};

static struct item read_item(struct rfs_proto message)
{
    struct item item = {.name = {NULL, NULL, false}};
    struct rfs_proto_field field;

    while (rfs_proto_next(&message, &field))
        if (field.number == RFS_ITEM_NAME)
            item.name = field.inside;
        else if (field.number == RFS_ITEM_VALUE)
            item.value = field.inside;
    return item;
}

static size_t bytes_of(struct rfs_proto name)
{
    return (size_t)(name.end - name.at);
}

static int32_t as_int32(uint64_t value)
{
    return (int32_t)(uint32_t)value;
}

static int add_dev(struct rfs_layout_builder *item, uint64_t value)
{
    return rfs_layout_add_dev(item, (uint32_t)value);
}

static int add_cut(struct rfs_layout_builder *item, uint64_t value)
{
    return rfs_layout_add_cut(item, as_int32(value));
}

static int add_axis(struct rfs_layout_builder *item, uint64_t value)
{
    const int rc = rfs_layout_add_axis(item);

    return rc == 0 ? add_cut(item, value) : rc;
}

static int add_rows(struct rfs_layout_builder *item, uint64_t value)
{
    return rfs_layout_add_rows(item, (int64_t)value);
}

static int add_offset(struct rfs_layout_builder *item, uint64_t value)
{
    return rfs_layout_add_offset(item, (int64_t)value);
}

/* Calls ADD for each number of a message of dims. */
static int read_dims(struct rfs_layout_builder *item, struct rfs_proto message,
                     int (*add)(struct rfs_layout_builder *, uint64_t))
{
    struct rfs_proto_field field;
    uint64_t number;
    int rc = 0;

    while (rc == 0 && rfs_proto_next(&message, &field))
        while (rc == 0 && field.number == RFS_DIMS_DIM && rfs_proto_number(&field, &number))
            rc = add(item, number);
    return rc;
}

/* The map of one axis, unless it is empty. */
static int read_axis(struct rfs_layout_builder *item, struct rfs_proto map)
{
    struct rfs_proto_field field, at;
    uint64_t number;
    bool any = false;

    for (struct rfs_proto look = map; !any && rfs_proto_next(&look, &field);) {
        at = field;
        any = field.number == RFS_DIMS_DIM && rfs_proto_number(&at, &number);
    }
    const int rc = any ? rfs_layout_add_axis(item) : 0;
    return rc == 0 ? read_dims(item, map, add_cut) : rc;
}

/* MindSpore reads the first message of each kind only, and writes one. */
static int check_counts(struct rfs_layout_builder *item, struct rfs_proto layouts)
{
    const size_t devs = rfs_proto_count(layouts, RFS_LAYOUTS_DEV);
    const size_t splits = rfs_proto_count(layouts, RFS_LAYOUTS_SPLIT);
    const size_t offsets = rfs_proto_count(layouts, RFS_LAYOUTS_OFFSETS);

    if (devs > 1)
        return rfs_layout_fail(item, NULL, "it has %zu device matrices", devs);
    if (splits > 1 || offsets > 1)
        return rfs_layout_fail(item, NULL, "it has %zu param_split_shape and %zu indices_offset",
                               splits, offsets);
    return 0;
}

static int read_layouts(struct rfs_layout_builder *item, struct rfs_proto layouts)
{
    const size_t maps = rfs_proto_count(layouts, RFS_LAYOUTS_MAP);
    struct rfs_proto_field field;
    int rc = check_counts(item, layouts);

    while (rc == 0 && rfs_proto_next(&layouts, &field))
        switch (field.number) {
        case RFS_LAYOUTS_DEV:
            rc = read_dims(item, field.inside, add_dev);
            break;
        case RFS_LAYOUTS_MAP:
            rc = maps > 1 ? read_axis(item, field.inside) : read_dims(item, field.inside, add_axis);
            break;
        case RFS_LAYOUTS_SPLIT:
            rc = read_dims(item, field.inside, add_rows);
            break;
        case RFS_LAYOUTS_OFFSETS:
            rc = read_dims(item, field.inside, add_offset);
            break;
        case RFS_LAYOUTS_FIELD:
            item->field = as_int32(field.value);
            break;
        case RFS_LAYOUTS_STEP:
            item->opt_step = as_int32(field.value);
            break;
        case RFS_LAYOUTS_SIZE:
            item->opt_size = as_int32(field.value);
            break;
        default:
            break;
        }
    item->per_axis = maps > 1 && item->layout.n_axes > 0;
    return rc == 0 && maps == 0 ? rfs_layout_fail(item, NULL, "it has no tensor map") : rc;
}

static uint32_t stage_of(struct rfs_proto strategys)
{
    struct rfs_proto_field field;
    uint64_t stage = 0;

    while (rfs_proto_next(&strategys, &field))
        if (field.number == RFS_STRATEGYS_STAGE)
            stage = field.value;
    return (uint32_t)stage;
}

/* Notes fields that a document would lose; NAME is that of an item, or NULL. */
static void note_others(const struct rfs_layout_builder *item, const char *name,
                        struct rfs_proto message, const struct rfs_proto_shape *shape)
{
    if (item->doc && rfs_proto_has_others(message, shape))
        rfs_fail(rfs_strategy_doc_lost(item->doc), -EINVAL, RFS_OF(item->file, name), NULL,
                 "it has a field that this program does not know, and would lose");
}

/* The numbers of an input of an operator, for the document. */
static bool keep_input(struct rfs_strategy_doc *doc, struct rfs_proto message)
{
    struct rfs_proto_field field;
    uint64_t number;
    bool ok = rfs_strategy_doc_input(doc);

    while (ok && rfs_proto_next(&message, &field))
        while (ok && field.number == RFS_DIMS_DIM && rfs_proto_number(&field, &number))
            ok = rfs_strategy_doc_cut(doc, (uint32_t)number);
    return ok;
}

static bool keep_node(const struct rfs_layout_builder *item, struct rfs_proto message)
{
    struct rfs_strategy_doc *doc = item->doc;
    const struct item node = read_item(message);
    const size_t bytes = bytes_of(node.name);
    const uint32_t id = rfs_intern_add(doc->pool, node.name.at, bytes);
    struct rfs_proto_field field;

    if (id == RFS_NO_ID || !rfs_strategy_doc_node(doc))
        return false;
    const char *name = rfs_intern_text(doc->pool, id);
    if (!rfs_text_is_utf8(name, bytes))
        rfs_fail(rfs_strategy_doc_lost(doc), -EINVAL, RFS_OF(item->file, name), NULL,
                 "the operator's name is not UTF-8 text without NULs");
    note_others(item, name, message, &strategy_item_shape);
    note_others(item, name, node.value, &strategys_shape);
    for (struct rfs_proto look = node.value; rfs_proto_next(&look, &field);)
        if (field.number == RFS_STRATEGYS_CUTS && !keep_input(doc, field.inside))
            return false;
    return rfs_strategy_doc_node_end(doc, id, stage_of(node.value));
}

static int read_param(struct rfs_strategy_builder *builder, struct rfs_layout_builder *item,
                      struct rfs_proto message)
{
    const struct item param = read_item(message);

    rfs_layout_begin(item, (const char *)param.name.at, bytes_of(param.name));
    if (item->doc) {
        RFS_FREE char *name = strndup(item->name, item->name_bytes);
        note_others(item, name, message, &layout_item_shape);
        note_others(item, name, param.value, &layouts_shape);
    }
    const int rc = read_layouts(item, param.value);
    return rc == 0 ? rfs_strategy_builder_add(builder, item) : rc;
}

int rfs_strategy_read_protobuf(struct rfs_strategy_builder *builder,
                               struct rfs_layout_builder *item, const void *data, size_t size)
{
    struct rfs_proto message = rfs_proto_begin(data, size);
    struct rfs_proto_field field;
    bool has_items = false;
    int rc = 0;

    if (!rfs_proto_has_shape(message, &strategy_shape))
        return rfs_fail(item->err, -EINVAL, RFS_IN(item->file), REMEDY,
                        "not a strategy in protobuf");
    note_others(item, NULL, message, &strategy_shape);
    while (rc == 0 && rfs_proto_next(&message, &field)) {
        if (field.number == RFS_STRATEGY_NODES && !has_items) {
            has_items = true;
            rfs_strategy_builder_first_item_stage(builder, stage_of(read_item(field.inside).value));
        }
        if (field.number == RFS_STRATEGY_STAGE && item->doc)
            item->doc->current_stage = (uint32_t)field.value;
        else if (field.number == RFS_STRATEGY_NODES && item->doc)
            rc = keep_node(item, field.inside) ? 0 : rfs_fail_memory(item->err);
        else if (field.number == RFS_STRATEGY_PARAMS)
            rc = read_param(builder, item, field.inside);
    }
    return rc;
}
