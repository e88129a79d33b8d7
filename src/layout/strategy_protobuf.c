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
 * axis gets an extra empty one, so that there is more than one). The compiler writes layouts in hash
 * order. Source: _build_protobuf_strategy and _convert_to_list of MindSpore 2.10.
 *
 * Nothing is unpacked: protobuf-c takes 45 times the bytes of empty messages.
 */
#include "layout/strategy_proto.h"

#include "layout/builder.h"

#include <errno.h>

#define REMEDY "the file that MindSpore saved as strategy; JSON strategies have names in .json"

static const struct rfs_proto_shape dims = {{{1, RFS_PROTO_NUMBERS, false, NULL}}};

const struct rfs_proto_shape rfs_proto_layouts = {{
    {RFS_LAYOUTS_DEV, RFS_PROTO_MESSAGES, false, &dims},
    {RFS_LAYOUTS_MAP, RFS_PROTO_MESSAGES, false, &dims},
    {RFS_LAYOUTS_SPLIT, RFS_PROTO_MESSAGES, false, &dims},
    {RFS_LAYOUTS_OFFSETS, RFS_PROTO_MESSAGES, false, &dims},
    {RFS_LAYOUTS_FIELD, RFS_PROTO_NUMBER, true, NULL},
    {RFS_LAYOUTS_STEP, RFS_PROTO_NUMBER, true, NULL},
    {RFS_LAYOUTS_SIZE, RFS_PROTO_NUMBER, true, NULL},
}};

const struct rfs_proto_shape rfs_proto_layout_item = {{
    {RFS_ITEM_NAME, RFS_PROTO_BYTES, true, NULL},
    {RFS_ITEM_VALUE, RFS_PROTO_MESSAGES, true, &rfs_proto_layouts},
}};

const struct rfs_proto_shape rfs_proto_strategys = {{
    {RFS_STRATEGYS_STAGE, RFS_PROTO_NUMBER, true, NULL},
    {RFS_STRATEGYS_CUTS, RFS_PROTO_MESSAGES, false, &dims},
}};

const struct rfs_proto_shape rfs_proto_strategy_item = {{
    {RFS_ITEM_NAME, RFS_PROTO_BYTES, true, NULL},
    {RFS_ITEM_VALUE, RFS_PROTO_MESSAGES, true, &rfs_proto_strategys},
}};

const struct rfs_proto_shape rfs_proto_strategy = {{
    {RFS_STRATEGY_STAGE, RFS_PROTO_NUMBER, true, NULL},
    {RFS_STRATEGY_NODES, RFS_PROTO_MESSAGES, false, &rfs_proto_strategy_item},
    {RFS_STRATEGY_PARAMS, RFS_PROTO_MESSAGES, false, &rfs_proto_layout_item},
}};

struct rfs_proto_item rfs_proto_item(struct rfs_proto message)
{
    struct rfs_proto_item item = {0};
    struct rfs_proto_field field;

    while (rfs_proto_next(&message, &field))
        if (field.number == RFS_ITEM_NAME)
            item.name = field.inside;
        else if (field.number == RFS_ITEM_VALUE)
            item.value = field.inside;
    return item;
}

static size_t count(struct rfs_proto layouts, uint32_t number)
{
    struct rfs_proto_field field;
    size_t n = 0;

    while (rfs_proto_next(&layouts, &field))
        n += field.number == number;
    return n;
}

static int32_t as_int32(uint64_t value)
{
    return (int32_t)(uint32_t)value;
}

static int add_dev(struct rfs_draft *draft, uint64_t value)
{
    return rfs_draft_dev(draft, (uint32_t)value);
}

static int add_cut(struct rfs_draft *draft, uint64_t value)
{
    return rfs_draft_cut(draft, as_int32(value));
}

static int add_axis(struct rfs_draft *draft, uint64_t value)
{
    const int rc = rfs_draft_axis(draft);

    return rc == 0 ? add_cut(draft, value) : rc;
}

static int add_rows(struct rfs_draft *draft, uint64_t value)
{
    return rfs_draft_split(draft, (int64_t)value);
}

static int add_offset(struct rfs_draft *draft, uint64_t value)
{
    (void)value;
    draft->n_offsets++;
    return 0;
}

/* Calls ADD for each number of a message of dims. */
static int read_dims(struct rfs_draft *draft, struct rfs_proto message,
                     int (*add)(struct rfs_draft *, uint64_t))
{
    struct rfs_proto_field field;
    uint64_t number;
    int rc = 0;

    while (rc == 0 && rfs_proto_next(&message, &field))
        while (rc == 0 && field.number == 1 && rfs_proto_number(&field, &number))
            rc = add(draft, number);
    return rc;
}

/* The map of one axis, unless it is empty. */
static int read_axis(struct rfs_draft *draft, struct rfs_proto map)
{
    struct rfs_proto_field field, at;
    uint64_t number;
    bool any = false;

    for (struct rfs_proto look = map; !any && rfs_proto_next(&look, &field);) {
        at = field;
        any = field.number == 1 && rfs_proto_number(&at, &number);
    }
    const int rc = any ? rfs_draft_axis(draft) : 0;
    return rc == 0 ? read_dims(draft, map, add_cut) : rc;
}

/* MindSpore reads the first message of each kind only, and writes one. */
static int check_counts(struct rfs_draft *draft, struct rfs_proto layouts)
{
    const size_t devs = count(layouts, RFS_LAYOUTS_DEV);
    const size_t splits = count(layouts, RFS_LAYOUTS_SPLIT);
    const size_t offsets = count(layouts, RFS_LAYOUTS_OFFSETS);

    if (devs > 1)
        return rfs_draft_fail(draft, NULL, "it has %zu device matrices", devs);
    if (splits > 1 || offsets > 1)
        return rfs_draft_fail(draft, NULL, "it has %zu param_split_shape and %zu indices_offset",
                              splits, offsets);
    return 0;
}

static int read_layouts(struct rfs_draft *draft, struct rfs_proto layouts)
{
    const size_t maps = count(layouts, RFS_LAYOUTS_MAP);
    struct rfs_proto_field field;
    int rc = check_counts(draft, layouts);

    while (rc == 0 && rfs_proto_next(&layouts, &field))
        switch (field.number) {
        case RFS_LAYOUTS_DEV:
            rc = read_dims(draft, field.inside, add_dev);
            break;
        case RFS_LAYOUTS_MAP:
            rc = maps > 1 ? read_axis(draft, field.inside)
                          : read_dims(draft, field.inside, add_axis);
            break;
        case RFS_LAYOUTS_SPLIT:
            rc = read_dims(draft, field.inside, add_rows);
            break;
        case RFS_LAYOUTS_OFFSETS:
            rc = read_dims(draft, field.inside, add_offset);
            break;
        case RFS_LAYOUTS_FIELD:
            draft->field = as_int32(field.value);
            break;
        case RFS_LAYOUTS_STEP:
            draft->opt_step = as_int32(field.value);
            break;
        case RFS_LAYOUTS_SIZE:
            draft->opt_size = as_int32(field.value);
            break;
        default:
            break;
        }
    return rc == 0 && maps == 0 ? rfs_draft_fail(draft, NULL, "it has no tensor map") : rc;
}

uint32_t rfs_proto_stage(struct rfs_proto strategys)
{
    struct rfs_proto_field field;
    uint64_t stage = 0;

    while (rfs_proto_next(&strategys, &field))
        if (field.number == RFS_STRATEGYS_STAGE)
            stage = field.value;
    return (uint32_t)stage;
}

int rfs_strategy_read_protobuf(struct rfs_builder *builder, struct rfs_draft *draft,
                               const void *data, size_t size)
{
    struct rfs_proto strategy = rfs_proto_begin(data, size);
    struct rfs_proto_field field;
    bool has_items = false;
    int rc = 0;

    if (!rfs_proto_has_shape(strategy, &rfs_proto_strategy))
        return rfs_fail(draft->err, -EINVAL, RFS_IN(draft->file), REMEDY,
                        "not a strategy in protobuf");
    while (rc == 0 && rfs_proto_next(&strategy, &field)) {
        const struct rfs_proto_item item = rfs_proto_item(field.inside);
        if (field.number == RFS_STRATEGY_NODES && !has_items) {
            has_items = true;
            rfs_builder_first_item_stage(builder, rfs_proto_stage(item.value));
        } else if (field.number == RFS_STRATEGY_PARAMS) {
            rfs_draft_begin(draft, (const char *)item.name.at,
                            (size_t)(item.name.end - item.name.at));
            rc = read_layouts(draft, item.value);
            if (rc == 0)
                rc = rfs_builder_add(builder, draft);
        }
    }
    return rc;
}
