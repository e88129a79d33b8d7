/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy files in protobuf, to be written again; strategy_protobuf.c draws the format. Messages are laid out in an
 * arena and packed by protobuf-c, which writes fields in the order of their numbers, as Python's protobuf does.
 */
#include "layout/written.h"

#include "base/text.h"
#include "proto/node_strategy.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef Mindspore__Straspb__ParallelStrategyMap strategy_map;
typedef Mindspore__Straspb__ParallelStrategyItem strategy_item;
typedef Mindspore__Straspb__ParallelStrategys strategies;
typedef Mindspore__Straspb__ParallelStrategy one_strategy;
typedef Mindspore__Straspb__ParallelLayoutItem layout_item;
typedef Mindspore__Straspb__ParallelLayouts layouts;

/* ---- reading ---- */

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

static int fail_unknown(const struct rfs_written *out, const char *name, struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_OF(out->name, name), NULL,
                    "it has a field that this program does not know, and which would be lost");
}

/* The numbers of a message of one repeated field. */
#define TAKE(out, message, numbers)                                                                \
    (rfs_numbers_new(&(out)->arena, (message)->n_dim, (numbers)) && ({                             \
         for (size_t take_i = 0; take_i < (message)->n_dim; take_i++)                              \
             (numbers)->data[take_i] = (int64_t)(message)->dim[take_i];                            \
         true;                                                                                     \
     }))

static const char *take_name(struct rfs_written *out, const ProtobufCBinaryData *name)
{
    return rfs_arena_text(&out->arena, (const char *)name->data, name->len);
}

static int read_node(struct rfs_written *out, const strategy_item *item, struct rfs_error *err)
{
    const strategies *all = item->parallel_strategys;
    const uint32_t n = (uint32_t)all->n_parallel_strategy;
    struct rfs_written_node node = {
        take_name(out, &item->node_name), all->stage, n,
        rfs_arena_alloc(&out->arena, (n > 0 ? n : 1) * sizeof *node.cuts)};

    if (!node.name || !node.cuts)
        return rfs_fail_memory(err);
    if (memchr(item->node_name.data, '\0', item->node_name.len) ||
        !rfs_text_is_utf8((const char *)item->node_name.data, item->node_name.len))
        return rfs_fail(err, -EINVAL, RFS_OF(out->name, node.name), NULL,
                        "the operator's name is not UTF-8 text without NULs");
    if (item->base.n_unknown_fields > 0 || all->base.n_unknown_fields > 0)
        return fail_unknown(out, node.name, err);
    for (uint32_t i = 0; i < n; i++)
        if (!TAKE(out, all->parallel_strategy[i], &node.cuts[i]))
            return rfs_fail_memory(err);
    return RFS_PUSH(&out->nodes, node) ? 0 : rfs_fail_memory(err);
}

static bool take_layouts(struct rfs_written *out, const layouts *from,
                         struct rfs_written_param *param)
{
    param->n_maps = (uint32_t)from->n_tensor_map;
    param->maps = rfs_arena_alloc(&out->arena, from->n_tensor_map * sizeof *param->maps);
    if (!param->maps || !TAKE(out, from->dev_matrix[0], &param->dev))
        return false;
    for (uint32_t i = 0; i < param->n_maps; i++)
        if (!TAKE(out, from->tensor_map[i], &param->maps[i]))
            return false;
    return (from->n_param_split_shape == 0 ||
            TAKE(out, from->param_split_shape[0], &param->split)) &&
           (from->n_indices_offset == 0 || TAKE(out, from->indices_offset[0], &param->offsets));
}

static int read_param(struct rfs_written *out, const layout_item *item, struct rfs_error *err)
{
    const layouts *from = item->parallel_layouts;
    struct rfs_written_param param = {.name = take_name(out, &item->param_name),
                                      .field = from->field,
                                      .opt_step = from->opt_weight_shard_step,
                                      .opt_size = from->opt_weight_shard_size};

    if (!param.name)
        return rfs_fail_memory(err);
    if (item->base.n_unknown_fields > 0 || from->base.n_unknown_fields > 0)
        return fail_unknown(out, param.name, err);
    return take_layouts(out, from, &param) && RFS_PUSH(&out->params, param) ? 0
                                                                            : rfs_fail_memory(err);
}

static int read_map(struct rfs_written *out, const strategy_map *map, struct rfs_error *err)
{
    int rc = map->base.n_unknown_fields > 0 ? fail_unknown(out, NULL, err) : 0;

    out->current_stage = map->current_stage;
    for (size_t i = 0; rc == 0 && i < map->n_parallel_strategy_item; i++)
        rc = read_node(out, map->parallel_strategy_item[i], err);
    for (size_t i = 0; rc == 0 && i < map->n_parallel_layout_item; i++)
        rc = read_param(out, map->parallel_layout_item[i], err);
    return rc;
}

int rfs_written_read_protobuf(const void *data, size_t size, struct rfs_written *out,
                              struct rfs_error *err)
{
    struct memory memory = {.exhausted = false};
    ProtobufCAllocator allocator = {memory_alloc, memory_keep, &memory};
    const strategy_map *map =
        mindspore__straspb__parallel_strategy_map__unpack(&allocator, size, data);
    /* It was read before, as a strategy. */
    const int rc = map ? read_map(out, map, err) : rfs_fail_memory(err);

    rfs_arena_free(&memory.arena);
    return rc;
}

/* ---- writing ---- */

/* An array of N pointers to N messages, initialised by INIT; NULL when out of memory. */
static void *new_messages(struct rfs_arena *arena, size_t n, const void *init, size_t size)
{
    void **list = rfs_arena_alloc(arena, (n > 0 ? n : 1) * sizeof *list);
    char *messages = rfs_arena_alloc(arena, (n > 0 ? n : 1) * size);

    if (!list || !messages)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        list[i] = messages + i * size;
        memcpy(list[i], init, size);
    }
    return list;
}

#define NEW_MESSAGES(arena, n, type, INIT) new_messages(arena, n, &(const type)INIT, sizeof(type))

/* Gives a message of one repeated field its numbers, which have been checked to fit. */
#define PUT(arena, message, numbers)                                                               \
    ({                                                                                             \
        (message)->n_dim = (numbers)->n;                                                           \
        (message)->dim = rfs_arena_alloc(arena, ((numbers)->n > 0 ? (numbers)->n : 1) *            \
                                                    sizeof *(message)->dim);                       \
        for (uint32_t put_i = 0; (message)->dim && put_i < (numbers)->n; put_i++)                  \
            (message)->dim[put_i] = (__typeof__(*(message)->dim))(numbers)->data[put_i];           \
        (message)->dim != NULL;                                                                    \
    })

static ProtobufCBinaryData put_name(const char *name)
{
    union {
        const char *from;
        uint8_t *to;
    } text = {name};

    return (ProtobufCBinaryData){strlen(name), text.to};
}

static int fail_range(const struct rfs_written *written, const char *name, const char *what,
                      struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_OF(written->name, name), "--to json",
                    "%s is too large for protobuf", what);
}

static bool all_within(const struct rfs_numbers *numbers, int64_t low, int64_t high)
{
    for (uint32_t i = 0; i < numbers->n; i++)
        if (numbers->data[i] < low || numbers->data[i] > high)
            return false;
    return true;
}

static int put_node(struct rfs_arena *arena, const struct rfs_written *written,
                    const struct rfs_written_node *node, strategy_item *item, struct rfs_error *err)
{
    strategies **all =
        NEW_MESSAGES(arena, 1, strategies, MINDSPORE__STRASPB__PARALLEL_STRATEGYS__INIT);
    one_strategy **cuts = NEW_MESSAGES(arena, node->n_cuts, one_strategy,
                                       MINDSPORE__STRASPB__PARALLEL_STRATEGY__INIT);

    if (!all || !cuts)
        return rfs_fail_memory(err);
    item->node_name = put_name(node->name);
    item->parallel_strategys = all[0];
    all[0]->stage = node->stage;
    all[0]->n_parallel_strategy = node->n_cuts;
    all[0]->parallel_strategy = cuts;
    for (uint32_t i = 0; i < node->n_cuts; i++) {
        if (!all_within(&node->cuts[i], 0, UINT32_MAX))
            return fail_range(written, node->name, "a number of the operator's strategy", err);
        if (!PUT(arena, cuts[i], &node->cuts[i]))
            return rfs_fail_memory(err);
    }
    return 0;
}

/*
 * Whether a map as JSON has it may be a nested one: two entries side by side may be of one axis if the first has as
 * many elements as its device axis has devices.
 */
static bool may_be_nested(const struct rfs_written_param *param)
{
    const struct rfs_numbers *map = &param->maps[0];

    if (!param->flat || !param->has_shape || param->split.n > 0)
        return false;
    for (uint32_t i = 0; i + 1 < map->n; i++) {
        const int64_t entry = map->data[i];
        if (entry >= 0 && map->data[i + 1] >= 0 &&
            param->dev.data[param->dev.n - 1 - (uint32_t)entry] == param->shape.data[i])
            return true;
    }
    return false;
}

static int put_layouts(struct rfs_arena *arena, const struct rfs_written_param *param, layouts *to,
                       struct rfs_error *err)
{
    Mindspore__Straspb__DevMatrix **dev =
        NEW_MESSAGES(arena, 1, Mindspore__Straspb__DevMatrix, MINDSPORE__STRASPB__DEV_MATRIX__INIT);
    Mindspore__Straspb__TensorMap **maps = NEW_MESSAGES(
        arena, param->n_maps, Mindspore__Straspb__TensorMap, MINDSPORE__STRASPB__TENSOR_MAP__INIT);
    Mindspore__Straspb__ParamSplitShape **split = NEW_MESSAGES(
        arena, 1, Mindspore__Straspb__ParamSplitShape, MINDSPORE__STRASPB__PARAM_SPLIT_SHAPE__INIT);
    Mindspore__Straspb__IndicesOffset **offsets = NEW_MESSAGES(
        arena, 1, Mindspore__Straspb__IndicesOffset, MINDSPORE__STRASPB__INDICES_OFFSET__INIT);

    if (!dev || !maps || !split || !offsets || !PUT(arena, dev[0], &param->dev) ||
        !PUT(arena, split[0], &param->split) || !PUT(arena, offsets[0], &param->offsets))
        return rfs_fail_memory(err);
    for (uint32_t i = 0; i < param->n_maps; i++)
        if (!PUT(arena, maps[i], &param->maps[i]))
            return rfs_fail_memory(err);
    to->n_dev_matrix = to->n_param_split_shape = to->n_indices_offset = 1;
    to->n_tensor_map = param->n_maps;
    to->dev_matrix = dev;
    to->tensor_map = maps;
    to->param_split_shape = split;
    to->indices_offset = offsets;
    to->field = (int32_t)param->field;
    to->opt_weight_shard_step = (int32_t)param->opt_step;
    to->opt_weight_shard_size = (int32_t)param->opt_size;
    return 0;
}

static int put_param(struct rfs_arena *arena, const struct rfs_written *written,
                     const struct rfs_written_param *param, layout_item *item,
                     struct rfs_error *err)
{
    layouts **to = NEW_MESSAGES(arena, 1, layouts, MINDSPORE__STRASPB__PARALLEL_LAYOUTS__INIT);

    if (!to)
        return rfs_fail_memory(err);
    if (may_be_nested(param))
        return rfs_fail(err, -EINVAL, RFS_OF(written->name, param->name),
                        "--tree SRC with the checkpoint, which tells",
                        "it may be a tensor with an axis that several device axes cut: JSON does "
                        "not tell, and protobuf has to");
    if (param->field > INT32_MAX || param->opt_step > INT32_MAX || param->opt_size > INT32_MAX)
        return fail_range(written, param->name, "field, opt_weight_shard_step or _size", err);
    item->param_name = put_name(param->name);
    item->parallel_layouts = to[0];
    return put_layouts(arena, param, to[0], err);
}

static int put_all(struct rfs_arena *arena, const struct rfs_written *written, strategy_map *map,
                   struct rfs_error *err)
{
    int rc = 0;

    map->n_parallel_strategy_item = written->nodes.n;
    map->n_parallel_layout_item = written->params.n;
    map->parallel_strategy_item = NEW_MESSAGES(arena, written->nodes.n, strategy_item,
                                               MINDSPORE__STRASPB__PARALLEL_STRATEGY_ITEM__INIT);
    map->parallel_layout_item = NEW_MESSAGES(arena, written->params.n, layout_item,
                                             MINDSPORE__STRASPB__PARALLEL_LAYOUT_ITEM__INIT);
    if (!map->parallel_strategy_item || !map->parallel_layout_item)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < written->nodes.n && rc == 0; i++)
        rc = put_node(arena, written, &written->nodes.data[i], map->parallel_strategy_item[i], err);
    for (size_t i = 0; i < written->params.n && rc == 0; i++)
        rc = put_param(arena, written, &written->params.data[i], map->parallel_layout_item[i], err);
    return rc;
}

int rfs_written_protobuf(const struct rfs_written *written, char **data, size_t *size,
                         struct rfs_error *err)
{
    strategy_map map = MINDSPORE__STRASPB__PARALLEL_STRATEGY_MAP__INIT;
    struct rfs_arena arena = {0};

    *data = NULL;
    if (written->current_stage < 0 || written->current_stage > UINT32_MAX)
        return fail_range(written, NULL, "current_stage", err);
    map.current_stage = (uint32_t)written->current_stage;
    int rc = put_all(&arena, written, &map, err);
    if (rc == 0) {
        *size = mindspore__straspb__parallel_strategy_map__get_packed_size(&map);
        *data = malloc(*size > 0 ? *size : 1);
        if (*data)
            mindspore__straspb__parallel_strategy_map__pack(&map, (uint8_t *)*data);
        else
            rc = rfs_fail_memory(err);
    }
    rfs_arena_free(&arena);
    return rc;
}
