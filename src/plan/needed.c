/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/needed.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/vec.h"
#include "plan/geometry.h"
#include "plan/role.h"

/* Two layouts of some parameter that a source stage gives to a destination stage. */
struct pair {
    uint32_t dst_stage, src_stage;
    const struct rfs_layout *src, *dst; /* dst NULL: whole */
    const char *param;                  /* a parameter that has them; the source strategy's */
    struct rfs_geometry *geometry;      /* owned; NULL until it is needed */
};

struct rfs_needed {
    struct rfs_role_rules rules;
    struct rfs_role_name *names; /* [parameters of the source strategy] */
    uint32_t src_devices, src_stages, dst_devices, dst_stages;
    RFS_VEC(struct pair) pairs;  /* ascending by stages and layouts, each once */
    unsigned char *stage_needed; /* [dst_stages * src_stages] */
};

void rfs_needed_free(struct rfs_needed *needed)
{
    if (!needed)
        return;
    for (size_t i = 0; i < needed->pairs.n; i++)
        free(needed->pairs.data[i].geometry);
    free(needed->pairs.data);
    free(needed->stage_needed);
    free(needed->names);
    free(needed);
}

uint32_t rfs_needed_ranks(const struct rfs_needed *needed)
{
    return needed->dst_devices * needed->dst_stages;
}

uint32_t rfs_needed_sources(const struct rfs_needed *needed)
{
    return needed->src_devices * needed->src_stages;
}

RFS_COMPARE(by_layouts, struct pair, x, y,
            RFS_ORDER(x->dst_stage, y->dst_stage)
                ?: RFS_ORDER(x->src_stage, y->src_stage)
                ?: RFS_ORDER(x->src->id, y->src->id)
                ?: RFS_ORDER(x->dst ? x->dst->id : 0, y->dst ? y->dst->id : 0))

static bool add_param(struct rfs_needed *needed, size_t i, uint32_t dst_stage)
{
    const struct rfs_strategy *src = needed->rules.src;
    const struct rfs_role_name *name = &needed->names[i];
    const uint32_t first = rfs_strategy_next_stage(src, i, 0);

    if (!rfs_role_is_needed(&needed->rules, name, dst_stage))
        return true;
    for (uint32_t s = first; s != RFS_NO_STAGE; s = rfs_strategy_next_stage(src, i, s + 1))
        needed->stage_needed[dst_stage * needed->src_stages + s] = 1;
    const struct rfs_role role = rfs_role_of(&needed->rules, name, first, dst_stage);
    if (role.kind != RFS_ROLE_SLICED)
        return true;
    const struct pair pair = {.dst_stage = dst_stage,
                              .src_stage = first,
                              .src = role.src,
                              .dst = role.dst,
                              .param = rfs_strategy_param(src, i)};
    return RFS_PUSH(&needed->pairs, pair);
}

/* Sorts the pairs of the last stage, which begin at FROM, and drops doubles. */
static void sort_pairs(struct rfs_needed *needed, size_t from)
{
    struct pair *pairs = needed->pairs.data + from;
    const size_t n = needed->pairs.n - from;
    size_t distinct = 0;

    RFS_SORT(pairs, n, by_layouts);
    for (size_t i = 0; i < n; i++)
        if (distinct == 0 || by_layouts(&pairs[distinct - 1], &pairs[i]) != 0)
            pairs[distinct++] = pairs[i];
    needed->pairs.n = from + distinct;
}

static bool collect(struct rfs_needed *needed)
{
    for (uint32_t stage = 0; stage < needed->dst_stages; stage++) {
        const size_t from = needed->pairs.n;
        for (size_t i = 0; i < rfs_strategy_count(needed->rules.src); i++)
            if (!add_param(needed, i, stage))
                return false;
        sort_pairs(needed, from);
    }
    return true;
}

int rfs_needed_open(const struct rfs_strategy *src, const struct rfs_strategy *dst,
                    struct rfs_needed **out, struct rfs_error *err)
{
    const struct rfs_role_rules rules = {.src = src, .dst = dst};
    RFS_FREE struct rfs_role_name *names = NULL;
    const int rc = rfs_role_look_up_all(&rules, &names, err);

    *out = NULL;
    if (rc)
        return rc;
    struct rfs_needed *needed = calloc(1, sizeof *needed);
    if (!needed)
        return rfs_fail_memory(err);
    needed->rules = rules;
    needed->names = RFS_STEAL(names);
    needed->src_devices = src ? rfs_strategy_devices(src) : 1;
    needed->src_stages = src ? rfs_strategy_stages(src) : 1;
    needed->dst_devices = dst ? rfs_strategy_devices(dst) : 1;
    needed->dst_stages = dst ? rfs_strategy_stages(dst) : 1;
    needed->stage_needed =
        calloc((size_t)needed->dst_stages * needed->src_stages, sizeof *needed->stage_needed);
    if (!needed->stage_needed || (src && !collect(needed))) {
        rfs_needed_free(needed);
        return rfs_fail_memory(err);
    }
    *out = needed;
    return 0;
}

/* ---- shapes that no strategy has ------------------------------------------------------------- */

/* Returns the number that an axis must be a multiple of to be cut by a layout, fields included. */
static uint64_t unit_of(const struct rfs_layout *layout)
{
    return layout ? (uint64_t)layout->devices * (layout->field > 0 ? layout->field : 1) : 1;
}

/* Sets some shape that both layouts cut; a strategy's own where it is JSON, which has it. */
static bool make_shape(const struct pair *pair, uint32_t *ndim, uint64_t *whole)
{
    const struct rfs_layout *src = pair->src;
    const struct rfs_layout *dst = pair->dst;
    const struct rfs_layout *fewer = dst && dst->n_axes < src->n_axes ? dst : src;
    const struct rfs_layout *given = fewer->n_expanded > 0 ? fewer
                                     : dst && dst->n_expanded > 0 && dst->n_axes == fewer->n_axes
                                         ? dst
                                         : NULL;
    const uint64_t a = unit_of(src);
    const uint64_t b = unit_of(dst);
    uint64_t both;

    *ndim = fewer->n_axes;
    if (*ndim > RFS_GRID_DIMS || !rfs_mul_u64(a / rfs_gcd_u64(a, b), b, &both))
        return false;
    for (uint32_t i = 0; i < *ndim; i++)
        whole[i] = given ? given->expanded[i] : both;
    if (*ndim > 0 && src->edge)
        whole[0] = src->edge[src->n_edges - 1];
    else if (*ndim > 0 && dst && dst->edge)
        whole[0] = dst->edge[dst->n_edges - 1];
    return true;
}

static int resolve(const struct rfs_needed *needed, const struct pair *pair,
                   struct rfs_geometry *out, struct rfs_error *err)
{
    const struct rfs_where in_src = RFS_OF(rfs_strategy_name(needed->rules.src), pair->param);
    int rc = -EINVAL;

    memset(out, 0, sizeof *out);
    out->item = 1;
    if (make_shape(pair, &out->ndim, out->whole)) {
        rc = rfs_grid_resolve(pair->src, out->ndim, out->whole, RFS_DIMS_OF_WHOLE, &out->src, NULL,
                              NULL, in_src, err);
        if (rc == 0 && pair->dst)
            rc = rfs_grid_resolve(pair->dst, out->ndim, out->whole, RFS_DIMS_OF_WHOLE, &out->dst,
                                  NULL, NULL,
                                  RFS_OF(rfs_strategy_name(needed->rules.dst), pair->param), err);
        else if (rc == 0)
            rfs_grid_single(out->ndim, &out->dst);
    }
    if (rc == 0 || rc == -ENOTSUP)
        return rc;
    return rfs_fail(err, -EINVAL, in_src, "reshard explain SRC, which knows the shapes",
                    "the two strategies do not say by themselves how they cut the same tensor");
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static int mark(const struct rfs_needed *needed, struct pair *pair, uint32_t local,
                unsigned char *wanted, struct rfs_error *err)
{
    struct rfs_cells cells;
    uint32_t cell[RFS_MAX_DIMS];

    if (!pair->geometry) {
        struct rfs_geometry *geometry = malloc(sizeof *geometry);
        if (!geometry)
            return rfs_fail_memory(err);
        const int rc = resolve(needed, pair, geometry, err);
        if (rc) {
            free(geometry);
            return rc;
        }
        pair->geometry = geometry;
    }
    rfs_geometry_cells(pair->geometry, local, &cells, cell);
    do
        wanted[pair->src_stage * needed->src_devices +
               rfs_grid_holder(&pair->geometry->src, cell, local % needed->src_devices)] = 1;
    while (rfs_geometry_cells_next(pair->geometry, &cells, cell));
    return 0;
}

int rfs_needed_by(struct rfs_needed *needed, uint32_t rank, unsigned char *wanted,
                  struct rfs_error *err)
{
    const uint32_t stage = rank / needed->dst_devices;
    const uint32_t local = rank % needed->dst_devices;
    int rc = 0;

    memset(wanted, 0, rfs_needed_sources(needed));
    for (uint32_t s = 0; s < needed->src_stages; s++)
        wanted[s * needed->src_devices + local % needed->src_devices] =
            !needed->rules.src || needed->stage_needed[stage * needed->src_stages + s];
    for (size_t i = 0; rc == 0 && i < needed->pairs.n; i++)
        if (needed->pairs.data[i].dst_stage == stage)
            rc = mark(needed, &needed->pairs.data[i], local, wanted, err);
    return rc;
}
