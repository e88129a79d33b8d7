/* SPDX-License-Identifier: Apache-2.0 */
/* Strategy files to be written again: shapes, merging, and what rules make. */
#include "layout/written.h"

#include "base/cleanup.h"
#include "base/intern.h"
#include "layout/builder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MERGED_STAGE 1   /* current_stage, as merge_pipeline_strategys writes */
#define COMPILED_STAGE 2 /* as the compiler does at the first compilation */

void rfs_written_free(struct rfs_written *written)
{
    free(written->nodes.data);
    free(written->params.data);
    rfs_arena_free(&written->arena);
    *written = (struct rfs_written){0};
}

bool rfs_numbers_new(struct rfs_arena *arena, size_t n, struct rfs_numbers *out)
{
    *out = (struct rfs_numbers){rfs_arena_alloc(arena, (n > 0 ? n : 1) * sizeof *out->data),
                                (uint32_t)n};
    return out->data != NULL;
}

bool rfs_written_is_nested(const struct rfs_written_param *param)
{
    for (uint32_t i = 0; param->n_maps > 1 && i < param->n_maps; i++)
        if (param->maps[i].n > 1)
            return true;
    return false;
}

int rfs_written_read(const char *name, const void *data, size_t size, struct rfs_written *out,
                     struct rfs_error *err)
{
    *out = (struct rfs_written){.name = name};
    return rfs_strategy_is_json(name) ? rfs_written_read_json(data, size, out, err)
                                      : rfs_written_read_protobuf(data, size, out, err);
}

/* ---- shapes ---- */

static int fail_shape(const struct rfs_written *written, const struct rfs_written_param *param,
                      struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_OF(written->name, param->name),
                    "the tree that was saved under this strategy",
                    "its tensor map does not go with the shape of the tensor");
}

/* The extent of the device axis that an entry of the map names; 1 for -1. */
static uint64_t extent_of(const struct rfs_written_param *param, int64_t entry)
{
    return entry < 0 ? 1 : (uint64_t)param->dev.data[param->dev.n - 1 - (uint32_t)entry];
}

/*
 * Entries of a flat map by axis: those of one are consecutive, and their part of the expanded shape multiplies to the
 * axis. Entries of 1, of device axes of one device, may fall to either side: they cut nothing.
 */
static int nest(struct rfs_written *written, struct rfs_written_param *param, uint32_t ndim,
                const uint64_t *whole, struct rfs_error *err)
{
    const struct rfs_numbers flat = param->maps[0];
    struct rfs_numbers *maps = rfs_arena_alloc(&written->arena, (ndim + 1) * sizeof *maps);
    uint32_t at = 0;

    if (!maps)
        return rfs_fail_memory(err);
    for (uint32_t i = 0; i < ndim; i++) {
        uint64_t product = 1;
        maps[i] = (struct rfs_numbers){flat.data + at, 0};
        while (at < flat.n && (maps[i].n == 0 || product < whole[i] || i + 1 == ndim)) {
            if (__builtin_mul_overflow(product, (uint64_t)param->shape.data[at], &product))
                return fail_shape(written, param, err);
            maps[i].n++;
            at++;
        }
        if (maps[i].n == 0 || product != whole[i])
            return fail_shape(written, param, err);
    }
    maps[ndim] = (struct rfs_numbers){flat.data, 0}; /* a nested map is more than one message */
    param->maps = maps;
    param->n_maps = ndim > 1 ? ndim : ndim + 1;
    return at == flat.n ? 0 : fail_shape(written, param, err);
}

/* The whole shape, each axis that several device axes cut as their extents and what is left. */
static int expand(struct rfs_written *written, struct rfs_written_param *param,
                  const uint64_t *whole, struct rfs_error *err)
{
    const bool nested = param->n_maps > 1;
    uint32_t n = 0;

    for (uint32_t i = 0; i < param->n_maps; i++)
        n += param->maps[i].n;
    if (!rfs_numbers_new(&written->arena, n, &param->shape))
        return rfs_fail_memory(err);
    n = 0;
    for (uint32_t i = 0, axis = 0; i < param->n_maps; i++) {
        const struct rfs_numbers *map = &param->maps[i];
        for (uint32_t k = 0; k < map->n; k++) {
            uint64_t rest = whole[axis];
            for (uint32_t j = 0; nested && j < k; j++)
                rest /= extent_of(param, map->data[j]);
            param->shape.data[n++] =
                (int64_t)(nested && k + 1 < map->n ? extent_of(param, map->data[k]) : rest);
            axis += !nested;
        }
        axis += nested && map->n > 0;
    }
    param->has_shape = true;
    return 0;
}

int rfs_written_shape(struct rfs_written *written, size_t i, uint32_t ndim, const uint64_t *whole,
                      struct rfs_error *err)
{
    struct rfs_written_param *param = &written->params.data[i];
    uint32_t axes = 0;

    for (uint32_t k = 0; k < param->n_maps; k++)
        axes += param->n_maps > 1 ? param->maps[k].n > 0 : param->maps[k].n;
    if (param->flat && axes != ndim) {
        if (!param->has_shape || axes < ndim)
            return fail_shape(written, param, err);
        const int rc = nest(written, param, ndim, whole, err);
        if (rc)
            return rc;
        axes = ndim;
    }
    param->flat = false;
    return axes == ndim ? expand(written, param, whole, err) : fail_shape(written, param, err);
}

/* ---- merging ---- */

static const char *prefixed(struct rfs_arena *arena, uint32_t stage, const char *name)
{
    RFS_FREE char *text = NULL;

    if (asprintf(&text, "%" PRIu32 "-%s", stage, name) < 0) {
        text = NULL;
        return NULL;
    }
    return rfs_arena_text(arena, text, strlen(text));
}

static bool copy_numbers(struct rfs_arena *arena, struct rfs_numbers *numbers)
{
    const struct rfs_numbers from = *numbers;

    if (!rfs_numbers_new(arena, from.n, numbers))
        return false;
    if (from.n > 0)
        memcpy(numbers->data, from.data, from.n * sizeof *from.data);
    return true;
}

static bool copy_lists(struct rfs_arena *arena, struct rfs_numbers **lists, uint32_t n)
{
    struct rfs_numbers *copy = rfs_arena_alloc(arena, (n > 0 ? n : 1) * sizeof *copy);

    for (uint32_t i = 0; copy && i < n; i++) {
        copy[i] = (*lists)[i];
        if (!copy_numbers(arena, &copy[i]))
            return false;
    }
    *lists = copy;
    return copy != NULL;
}

static bool merge_node(struct rfs_written *into, struct rfs_written_node node)
{
    node.name = rfs_arena_text(&into->arena, node.name, strlen(node.name));
    return node.name && copy_lists(&into->arena, &node.cuts, node.n_cuts) &&
           RFS_PUSH(&into->nodes, node);
}

static bool merge_param(struct rfs_written *into, struct rfs_written_param param, uint32_t stage)
{
    struct rfs_arena *arena = &into->arena;

    param.name = prefixed(arena, stage, param.name);
    return param.name && copy_numbers(arena, &param.dev) &&
           copy_lists(arena, &param.maps, param.n_maps) && copy_numbers(arena, &param.split) &&
           copy_numbers(arena, &param.offsets) && copy_numbers(arena, &param.shape) &&
           RFS_PUSH(&into->params, param);
}

int rfs_written_merge(struct rfs_written *into, const struct rfs_written *stage,
                      struct rfs_error *err)
{
    if (stage->nodes.n == 0 || stage->params.n == 0)
        return rfs_fail(err, -EINVAL, RFS_IN(stage->name), NULL,
                        "it has no strategy items, so nothing says which stage it is of");
    const uint32_t number = stage->nodes.data[0].stage;

    into->current_stage = MERGED_STAGE;
    for (size_t i = 0; i < stage->nodes.n; i++)
        if (!merge_node(into, stage->nodes.data[i]))
            return rfs_fail_memory(err);
    for (size_t i = 0; i < stage->params.n; i++)
        if (!merge_param(into, stage->params.data[i], number))
            return rfs_fail_memory(err);
    return 0;
}

/* ---- from a strategy ---- */

static bool make_maps(struct rfs_arena *arena, const struct rfs_layout *layout,
                      struct rfs_written_param *param)
{
    const bool nested = rfs_layout_cuts(layout) != layout->n_axes;
    const uint32_t n = nested ? layout->n_axes + 1 : 1;

    param->maps = rfs_arena_alloc(arena, n * sizeof *param->maps);
    param->n_maps = nested && layout->n_axes > 1 ? layout->n_axes : n;
    if (!param->maps)
        return false;
    if (!nested) {
        if (!rfs_numbers_new(arena, layout->n_axes, &param->maps[0]))
            return false;
        for (uint32_t i = 0; i < layout->n_axes; i++)
            param->maps[0].data[i] = layout->map[i];
        return true;
    }
    for (uint32_t i = 0; i <= layout->n_axes; i++) {
        const uint32_t begin = layout->start[i];
        const uint32_t end = i < layout->n_axes ? layout->start[i + 1] : begin;
        /* An axis that nothing cuts is [-1]. */
        const uint32_t n_cuts = end > begin || i == layout->n_axes ? end - begin : 1;
        if (!rfs_numbers_new(arena, n_cuts, &param->maps[i]))
            return false;
        if (n_cuts == 1)
            param->maps[i].data[0] = -1;
        for (uint32_t k = begin; k < end; k++)
            param->maps[i].data[k - begin] = layout->map[k];
    }
    return true;
}

static bool make_split(struct rfs_arena *arena, const struct rfs_layout *layout,
                       struct rfs_written_param *param)
{
    const uint32_t n = layout->n_edges > 0 ? layout->n_edges - 1 : 0;

    if (!rfs_numbers_new(arena, n, &param->split) || !rfs_numbers_new(arena, n, &param->offsets))
        return false;
    for (uint32_t k = 0; k < n; k++) {
        param->split.data[k] = (int64_t)(layout->edge[k + 1] - layout->edge[k]);
        param->offsets.data[k] = (int64_t)layout->edge[k];
    }
    return true;
}

static bool make_param(struct rfs_written *out, const char *name, uint32_t stage, bool stages,
                       const struct rfs_layout *layout)
{
    struct rfs_arena *arena = &out->arena;
    struct rfs_written_param param = {.name = stages ? prefixed(arena, stage, name)
                                                     : rfs_arena_text(arena, name, strlen(name)),
                                      .flat = layout->n_expanded > 0,
                                      .has_shape = layout->n_expanded > 0,
                                      .field = layout->field,
                                      .opt_step = layout->opt_step,
                                      .opt_size = layout->opt_size};

    if (!param.name || !rfs_numbers_new(arena, layout->n_dev, &param.dev) ||
        !make_maps(arena, layout, &param) || !make_split(arena, layout, &param) ||
        !rfs_numbers_new(arena, layout->n_expanded, &param.shape))
        return false;
    for (uint32_t i = 0; i < layout->n_dev; i++)
        param.dev.data[i] = layout->dev[i];
    for (uint32_t i = 0; i < layout->n_expanded; i++)
        param.shape.data[i] = (int64_t)layout->expanded[i];
    return RFS_PUSH(&out->params, param);
}

/* Each axis that nothing cuts is -1, as files have it. */
static void fill_uncut(struct rfs_layout *layout)
{
    struct rfs_layout full = *layout;
    uint32_t end = 0;

    if (rfs_layout_cuts(layout) + layout->n_axes > RFS_MAX_CUTS)
        return;
    for (uint32_t i = 0; i < layout->n_axes; i++) {
        const uint32_t before = end;
        full.start[i] = end;
        for (uint32_t k = layout->start[i]; k < layout->start[i + 1]; k++)
            full.map[end++] = layout->map[k];
        if (end == before)
            full.map[end++] = -1;
    }
    full.start[layout->n_axes] = end;
    *layout = full;
}

static int make_one(const struct rfs_strategy *strategy, size_t i, uint32_t stage,
                    const struct rfs_written_tensors *tensors, struct rfs_written *out,
                    struct rfs_error *err)
{
    const char *param = rfs_strategy_param(strategy, i);
    const struct rfs_where where = RFS_OF(rfs_strategy_name(strategy), param);
    struct rfs_layout layout = *rfs_strategy_layout(strategy, i, stage);
    int rc = 0;

    if (layout.unclear != RFS_CLEAR)
        return rfs_fail(err, -EINVAL, where, NULL, "it is not clear what its layout means: %s",
                        rfs_layout_unclear(&layout));
    if (layout.open) {
        const int ndim = tensors ? tensors->ndim(tensors->ctx, param, stage) : -1;
        const struct rfs_layout open = layout;
        if (ndim < 0 || ndim > RFS_MAX_CUTS)
            return rfs_fail(err, -EINVAL, where, "--tree SRC with the checkpoint",
                            "a rule says how it is cut, but not how many axes it has");
        rc = rfs_layout_close(&open, (uint32_t)ndim, &layout, where, err);
    }
    if (rc)
        return rc;
    fill_uncut(&layout);
    return make_param(out, param, stage, rfs_strategy_stages(strategy) > 1, &layout)
               ? 0
               : rfs_fail_memory(err);
}

static bool make_node(struct rfs_written *out, uint32_t stage)
{
    char name[32];
    snprintf(name, sizeof name, "Stage%" PRIu32, stage);
    const struct rfs_written_node node = {rfs_arena_text(&out->arena, name, strlen(name)), stage, 0,
                                          NULL};

    return node.name && RFS_PUSH(&out->nodes, node);
}

int rfs_written_make(const struct rfs_strategy *strategy, const struct rfs_written_tensors *tensors,
                     struct rfs_written *out, struct rfs_error *err)
{
    const uint32_t stages = rfs_strategy_stages(strategy);
    int rc = 0;

    *out = (struct rfs_written){.name = rfs_strategy_name(strategy),
                                .current_stage = stages > 1 ? MERGED_STAGE : COMPILED_STAGE};
    for (uint32_t stage = 0; stage < stages; stage++)
        if (!make_node(out, stage))
            return rfs_fail_memory(err);
    for (uint32_t stage = 0; stage < stages; stage++)
        for (size_t i = 0; i < rfs_strategy_count(strategy) && rc == 0; i++)
            if (rfs_strategy_layout(strategy, i, stage))
                rc = make_one(strategy, i, stage, tensors, out, err);
    return rc;
}
