/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy files in protobuf, to be written again; strategy_protobuf.c draws the format. Messages are laid out in an
 * arena and packed by protobuf-c, whose only user this is, which writes fields in the order of their numbers, as Python's protobuf does.
 */
#include "layout/written.h"

#include "base/text.h"
#include "layout/strategy_proto.h"
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

static int fail_unknown(const struct rfs_written *out, const char *name, struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_OF(out->name, name), NULL,
                    "it has a field that this program does not know, and which would be lost");
}

enum width { INT32, UINT32, INT64 };

static int64_t as_wide(uint64_t number, enum width width)
{
    return width == INT32    ? (int32_t)(uint32_t)number
           : width == UINT32 ? (int64_t)(uint32_t)number
                             : (int64_t)number;
}

/* The numbers of a message of dims. */
static bool take_dims(struct rfs_written *out, struct rfs_proto message, enum width width,
                      struct rfs_numbers *numbers)
{
    struct rfs_proto_field field;
    uint64_t number;
    size_t n = 0;

    for (struct rfs_proto look = message; rfs_proto_next(&look, &field);)
        while (field.number == 1 && rfs_proto_number(&field, &number))
            n++;
    if (!rfs_numbers_new(&out->arena, n, numbers))
        return false;
    n = 0;
    while (rfs_proto_next(&message, &field))
        while (field.number == 1 && rfs_proto_number(&field, &number))
            numbers->data[n++] = as_wide(number, width);
    return true;
}

static size_t count(struct rfs_proto message, uint32_t number)
{
    struct rfs_proto_field field;
    size_t n = 0;

    while (rfs_proto_next(&message, &field))
        n += field.number == number;
    return n;
}

/* Those of each message by that number. */
static bool take_all(struct rfs_written *out, struct rfs_proto message, uint32_t number,
                     enum width width, uint32_t *n, struct rfs_numbers **numbers)
{
    struct rfs_proto_field field;
    const size_t most = count(message, number);

    *n = 0;
    *numbers = rfs_arena_alloc(&out->arena, (most > 0 ? most : 1) * sizeof **numbers);
    while (*numbers && rfs_proto_next(&message, &field))
        if (field.number == number && !take_dims(out, field.inside, width, &(*numbers)[(*n)++]))
            return false;
    return *numbers != NULL;
}

static const char *take_name(struct rfs_written *out, struct rfs_proto name)
{
    return rfs_arena_text(&out->arena, (const char *)name.at, (size_t)(name.end - name.at));
}

static int read_node(struct rfs_written *out, struct rfs_proto message, struct rfs_error *err)
{
    const struct rfs_proto_item item = rfs_proto_item(message);
    const size_t bytes = (size_t)(item.name.end - item.name.at);
    struct rfs_written_node node = {.name = take_name(out, item.name),
                                    .stage = rfs_proto_stage(item.value)};

    if (!node.name)
        return rfs_fail_memory(err);
    if (memchr(node.name, '\0', bytes) || !rfs_text_is_utf8(node.name, bytes))
        return rfs_fail(err, -EINVAL, RFS_OF(out->name, node.name), NULL,
                        "the operator's name is not UTF-8 text without NULs");
    if (rfs_proto_has_others(message, &rfs_proto_strategy_item) ||
        rfs_proto_has_others(item.value, &rfs_proto_strategys))
        return fail_unknown(out, node.name, err);
    return take_all(out, item.value, RFS_STRATEGYS_CUTS, UINT32, &node.n_cuts, &node.cuts) &&
                   RFS_PUSH(&out->nodes, node)
               ? 0
               : rfs_fail_memory(err);
}

static bool take_layouts(struct rfs_written *out, struct rfs_proto from,
                         struct rfs_written_param *param)
{
    struct rfs_proto_field field;
    bool ok = take_all(out, from, RFS_LAYOUTS_MAP, INT32, &param->n_maps, &param->maps);

    while (ok && rfs_proto_next(&from, &field))
        switch (field.number) {
        case RFS_LAYOUTS_DEV:
            ok = take_dims(out, field.inside, UINT32, &param->dev);
            break;
        case RFS_LAYOUTS_SPLIT:
            ok = take_dims(out, field.inside, INT64, &param->split);
            break;
        case RFS_LAYOUTS_OFFSETS:
            ok = take_dims(out, field.inside, INT64, &param->offsets);
            break;
        case RFS_LAYOUTS_FIELD:
            param->field = as_wide(field.value, INT32);
            break;
        case RFS_LAYOUTS_STEP:
            param->opt_step = as_wide(field.value, INT32);
            break;
        case RFS_LAYOUTS_SIZE:
            param->opt_size = as_wide(field.value, INT32);
            break;
        default:
            break;
        }
    return ok;
}

static int read_param(struct rfs_written *out, struct rfs_proto message, struct rfs_error *err)
{
    const struct rfs_proto_item item = rfs_proto_item(message);
    struct rfs_written_param param = {.name = take_name(out, item.name)};

    if (!param.name)
        return rfs_fail_memory(err);
    if (rfs_proto_has_others(message, &rfs_proto_layout_item) ||
        rfs_proto_has_others(item.value, &rfs_proto_layouts))
        return fail_unknown(out, param.name, err);
    return take_layouts(out, item.value, &param) && RFS_PUSH(&out->params, param)
               ? 0
               : rfs_fail_memory(err);
}

/* It was read before, as a strategy, and has the shape of one. */
int rfs_written_read_protobuf(const void *data, size_t size, struct rfs_written *out,
                              struct rfs_error *err)
{
    struct rfs_proto strategy = rfs_proto_begin(data, size);
    struct rfs_proto_field field;
    int rc = rfs_proto_has_others(strategy, &rfs_proto_strategy) ? fail_unknown(out, NULL, err) : 0;

    while (rc == 0 && rfs_proto_next(&strategy, &field))
        if (field.number == RFS_STRATEGY_STAGE)
            out->current_stage = as_wide(field.value, UINT32);
        else if (field.number == RFS_STRATEGY_NODES)
            rc = read_node(out, field.inside, err);
        else
            rc = read_param(out, field.inside, err);
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
