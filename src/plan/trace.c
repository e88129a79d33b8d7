/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/trace.h"

#include "base/checked.h"
#include "base/order.h"
#include "plan/internal.h"

void rfs_trace_free(struct rfs_trace *trace)
{
    free(trace->pieces);
    *trace = (struct rfs_trace){0};
}

/* Adds a piece, all zeros. NULL when out of memory. */
static struct rfs_piece_trace *add_empty(struct rfs_trace *trace)
{
    if (trace->n == trace->cap &&
        !rfs_vec_grow((void **)&trace->pieces, &trace->cap, trace->n, sizeof *trace->pieces))
        return NULL;
    trace->pieces[trace->n] = (struct rfs_piece_trace){0};
    return &trace->pieces[trace->n++];
}

/* Sets what the destination's box and that of the source have in common, along axis I. */
static void set_axis(const struct rfs_cells *cells, uint32_t i,
                     const struct rfs_geometry_stored *box, struct rfs_piece_trace *piece)
{
    const uint64_t lo = rfs_max_u64(box->at[i], cells->lo[i]);

    piece->whole.at[i] = lo;
    piece->source.at[i] = lo - box->at[i] + (i == box->begin_axis ? box->begin : 0);
    piece->target.at[i] = lo - cells->lo[i] + (i == cells->begin_axis ? cells->begin : 0);
    piece->whole.len[i] = piece->source.len[i] = piece->target.len[i] =
        rfs_min_u64(box->at[i] + box->size[i], cells->hi[i]) - lo;
}

/*
 * Returns the axes, one bit each, along which all elements of a box lie in one place. The bit moves
 * along: shifts by I, which -fsanitize=undefined checks, make gcc believe in an axis 32.
 */
static uint32_t repeated_axes(const struct rfs_geometry_stored *box, uint32_t ndim)
{
    uint32_t axes = 0;

    for (uint32_t i = 0, bit = 1; i < ndim; i++, bit <<= 1)
        axes |= box->stride[i] == 0 ? bit : 0;
    return axes;
}

/* A trace while its pieces are collected. */
struct tracing {
    const struct rfs_planner *planner;
    struct rfs_provider_query query;
    uint32_t ndim; /* axes of the target; chunks of one that was flattened have others */
    struct rfs_trace *out;
};

static int add_piece(void *ctx, const struct rfs_piece *piece)
{
    const struct tracing *tracing = ctx;
    const struct rfs_piece_source *source = piece->source;
    const struct rfs_geometry_stored *box = &source->box;
    struct rfs_piece_trace *added = add_empty(tracing->out);

    if (!added)
        return -ENOMEM;
    added->rank = added->first = source->rank;
    added->block = piece->block;
    added->link = piece->link;
    if (piece->link) {
        added->span = *piece->span;
        return 0;
    }
    const struct rfs_type *type = rfs_catalog_type(tracing->planner->config.catalog, source->type);
    added->type = source->type;
    if (source->chunk == RFS_NO_ID)
        added->first = tracing->query.base + rfs_plan_first(&tracing->query, &source->asked);
    added->repeated = box->strided ? repeated_axes(box, tracing->ndim) : 0;
    for (uint32_t i = 0; piece->cells && i < tracing->ndim; i++)
        set_axis(piece->cells, i, box, added);
    if (!piece->cells) {
        memcpy(added->source.len, type->dims, sizeof added->source.len);
        added->whole = added->target = added->source;
    }
    return 0;
}

RFS_COMPARE(by_destination, struct rfs_piece_trace, x, y, RFS_ORDER(x->block.dst, y->block.dst))

int rfs_planner_trace(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                      const struct rfs_plan_part *part, struct rfs_trace *out)
{
    const uint32_t local = rank % planner->scale.dst_devices;
    struct tracing tracing = {planner, rfs_plan_query_of(planner, local, target),
                              rfs_catalog_type(planner->config.catalog, target->type)->ndim, out};
    const struct rfs_role role =
        rfs_plan_role(planner, target->name, target->stage, rank / planner->scale.dst_devices);

    out->n = 0;
    out->geometry = rfs_planner_geometry(planner, target);
    out->src = role.src;
    out->dst = role.dst;
    out->stage = target->stage;
    out->base = tracing.query.base;
    out->devices = rfs_catalog_chunks(planner->config.catalog) ? 0 : planner->scale.src_devices;
    out->differs = tracing.query.presence != NULL;
    const int rc = rfs_plan_pieces(planner, rank, target, part, 0, add_piece, &tracing);
    if (rc == 0 && !planner->config.by_rules && out->n > 1)
        RFS_SORT(out->pieces, out->n, by_destination);
    return rc;
}

bool rfs_trace_is_shared(const struct rfs_planner *planner, const struct rfs_target *target)
{
    const struct rfs_catalog *catalog = planner->config.catalog;
    const uint32_t base = rfs_plan_base(planner, target->stage);

    /* Chunks are a tensor's own; so may strides be, and the rank that has it. */
    if (target->geometry == RFS_NO_ID || rfs_catalog_chunks(catalog) ||
        rfs_formats[rfs_catalog_format(catalog)].strided ||
        RFS_PUBLISHED(&planner->stages[target->stage].presence))
        return false;
    for (uint32_t rank = base; rank < base + planner->scale.src_devices; rank++)
        if (rfs_catalog_has(catalog, rank) && rfs_catalog_file_count(catalog, rank) > 1)
            return false;
    return true;
}

enum rfs_holding rfs_trace_holding(const struct rfs_planner *planner,
                                   const struct rfs_target *target, const struct rfs_trace *trace,
                                   const struct rfs_piece_trace *piece, uint32_t rank)
{
    const struct rfs_catalog *catalog = planner->config.catalog;
    const uint32_t local = rank - trace->base;
    const struct rfs_provider_query query = rfs_plan_query_of(planner, local, target);
    bool same = true;

    if (trace->geometry) {
        const struct rfs_grid *grid = &trace->geometry->src;
        uint32_t mine[RFS_GRID_DIMS] = {0};
        uint32_t its[RFS_GRID_DIMS] = {0};
        rfs_grid_cell(grid, local, mine);
        rfs_grid_cell(grid, piece->rank - trace->base, its);
        same = memcmp(mine, its, sizeof mine) == 0;
    } else if (trace->src) {
        same = rfs_layout_slice(trace->src, local) ==
               rfs_layout_slice(trace->src, piece->rank - trace->base);
    } else {
        /* Each rank has a value of its own, and they need not be equal. */
        same = rank == piece->rank || rank == piece->first;
    }
    if (!same)
        return RFS_HOLDS_NOT;
    if (rfs_plan_has(&query, local))
        return RFS_HOLDS;
    return rfs_catalog_has(catalog, rank) ? RFS_HOLDS_BARE : RFS_HOLDS_LOST;
}
