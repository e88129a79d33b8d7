/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy files in protobuf (proto/node_strategy.proto), the only user of protobuf-c.
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
 */
#include "base/arena.h"
#include "layout/draft.h"
#include "proto/node_strategy.pb-c.h"

#include <errno.h>

typedef Mindspore__Straspb__ParallelStrategyMap strategy_map;
typedef Mindspore__Straspb__ParallelLayouts parallel_layouts;

#define REMEDY "the file that MindSpore saved as strategy; JSON strategies have names in .json"

/* The whole message is freed at once, so that a hundred thousand layouts cost no malloc each. */
struct memory {
    struct rfs_arena arena;
    bool exhausted; /* what protobuf-c does not tell from a message that is none */
};

static void *memory_alloc(void *ctx, size_t size)
{
    struct memory *memory = ctx;
    void *pointer = rfs_arena_alloc(&memory->arena, size > 0 ? size : 1);

    memory->exhausted |= pointer == NULL;
    return pointer;
}

static void memory_keep(void *ctx, void *pointer)
{
    (void)ctx;
    (void)pointer;
}

static int read_map(struct rfs_draft *draft, const parallel_layouts *layouts)
{
    int rc = 0;

    if (layouts->n_tensor_map == 0)
        return rfs_draft_fail(draft, NULL, "it has no tensor map");
    for (size_t k = 0; k < layouts->n_tensor_map; k++) {
        const Mindspore__Straspb__TensorMap *map = layouts->tensor_map[k];
        const bool nested = layouts->n_tensor_map > 1;
        if (nested && map->n_dim > 0)
            rc = rfs_draft_axis(draft);
        for (size_t i = 0; rc == 0 && i < map->n_dim; i++) {
            if (!nested)
                rc = rfs_draft_axis(draft);
            if (rc == 0)
                rc = rfs_draft_cut(draft, map->dim[i]);
        }
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* MindSpore reads the first message of each kind only, and writes one. */
static int read_split(struct rfs_draft *draft, const parallel_layouts *layouts)
{
    int rc = 0;

    if (layouts->n_param_split_shape > 1 || layouts->n_indices_offset > 1)
        return rfs_draft_fail(draft, NULL, "it has %zu param_split_shape and %zu indices_offset",
                              layouts->n_param_split_shape, layouts->n_indices_offset);
    if (layouts->n_param_split_shape == 1)
        for (size_t i = 0; rc == 0 && i < layouts->param_split_shape[0]->n_dim; i++)
            rc = rfs_draft_split(draft, layouts->param_split_shape[0]->dim[i]);
    if (layouts->n_indices_offset == 1)
        draft->n_offsets = layouts->indices_offset[0]->n_dim;
    return rc;
}

static int read_layouts(struct rfs_draft *draft, const parallel_layouts *layouts)
{
    int rc = 0;

    if (layouts->n_dev_matrix > 1)
        return rfs_draft_fail(draft, NULL, "it has %zu device matrices", layouts->n_dev_matrix);
    if (layouts->n_dev_matrix == 1)
        for (size_t i = 0; rc == 0 && i < layouts->dev_matrix[0]->n_dim; i++)
            rc = rfs_draft_dev(draft, layouts->dev_matrix[0]->dim[i]);
    if (rc == 0)
        rc = read_map(draft, layouts);
    if (rc == 0)
        rc = read_split(draft, layouts);
    draft->field = layouts->field;
    draft->opt_step = layouts->opt_weight_shard_step;
    draft->opt_size = layouts->opt_weight_shard_size;
    return rc;
}

static int read_items(struct rfs_builder *builder, struct rfs_draft *draft, const strategy_map *map)
{
    int rc = 0;

    if (map->n_parallel_strategy_item > 0)
        rfs_builder_first_item_stage(builder,
                                     map->parallel_strategy_item[0]->parallel_strategys->stage);
    for (size_t i = 0; rc == 0 && i < map->n_parallel_layout_item; i++) {
        const Mindspore__Straspb__ParallelLayoutItem *item = map->parallel_layout_item[i];
        rfs_draft_begin(draft, (const char *)item->param_name.data, item->param_name.len);
        rc = read_layouts(draft, item->parallel_layouts);
        if (rc == 0)
            rc = rfs_builder_add(builder, draft);
    }
    return rc;
}

int rfs_strategy_read_protobuf(struct rfs_builder *builder, struct rfs_draft *draft,
                               const void *data, size_t size)
{
    struct memory memory = {.exhausted = false};
    ProtobufCAllocator allocator = {memory_alloc, memory_keep, &memory};
    const strategy_map *map =
        mindspore__straspb__parallel_strategy_map__unpack(&allocator, size, data);
    int rc;

    if (map != NULL)
        rc = read_items(builder, draft, map);
    else if (memory.exhausted)
        rc = rfs_fail(draft->err, -ENOMEM, RFS_IN(draft->file), NULL, "out of memory");
    else
        rc = rfs_fail(draft->err, -EINVAL, RFS_IN(draft->file), REMEDY,
                      "not a strategy in protobuf");
    rfs_arena_free(&memory.arena);
    return rc;
}
