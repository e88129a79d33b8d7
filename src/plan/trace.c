/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/trace.h"

#include "base/checked.h"
#include "base/order.h"
#include "plan/chunked.h"

void rfs_trace_free(struct rfs_trace *trace)
{
    free(trace->pieces);
    *trace = (struct rfs_trace){0};
}

struct rfs_piece_trace *rfs_trace_add(struct rfs_trace *trace)
{
    if (trace->n == trace->cap &&
        !rfs_vec_grow((void **)&trace->pieces, &trace->cap, trace->n, sizeof *trace->pieces))
        return NULL;
    trace->pieces[trace->n] = (struct rfs_piece_trace){0};
    return &trace->pieces[trace->n++];
}

/*
 * Adds a piece, with its block's file and content. *strides is what rfs_index_strides gives of the
 * rank's slice.
 */
static int add_piece(const struct rfs_provider_query *query, uint32_t stage,
                     const struct rfs_plan_piece *piece, struct rfs_trace *out,
                     struct rfs_piece_trace **added, const uint64_t **strides)
{
    const struct rfs_planner *planner = query->planner;
    struct rfs_catalog *catalog = planner->config.catalog;
    const uint32_t rank = rfs_plan_provider(query, piece);
    const struct rfs_index *index;
    const struct rfs_entry *entry;
    const int rc = rfs_plan_find_entry(query, stage, rank, &index, &entry);

    if (rc)
        return rc;
    *added = rfs_trace_add(out);
    if (!*added)
        return -ENOMEM;
    (*added)->rank = rank;
    (*added)->first = query->base + rfs_plan_first(query, piece);
    (*added)->type = entry->type;
    (*added)->block.file = rfs_catalog_entry_file(catalog, rank, index, entry);
    *strides = rfs_index_strides(index, entry);
    for (uint32_t i = 0; *strides && i < rfs_catalog_type(catalog, entry->type)->ndim; i++)
        (*added)->repeated |= (uint32_t)((*strides)[i] == 0) << i;
    return rfs_catalog_content(catalog, index, entry, &(*added)->block.content);
}

/*
 * Sets one axis of a piece: what the destination box has of a source box from BEGIN to END, which
 * lies from ROW on in its slice.
 */
static void set_axis(const struct rfs_cells *cells, uint32_t i, uint64_t begin, uint64_t end,
                     uint64_t row, struct rfs_piece_trace *piece)
{
    const uint64_t lo = rfs_max_u64(begin, cells->lo[i]);

    piece->whole.at[i] = lo;
    piece->source.at[i] = lo - begin + row;
    piece->target.at[i] = lo - cells->lo[i] + (i == 0 ? cells->row : 0);
    piece->whole.len[i] = piece->source.len[i] = piece->target.len[i] =
        rfs_min_u64(end, cells->hi[i]) - lo;
}

/* Sets the boxes of a piece: what a destination box and a source cell have in common. */
static void set_boxes(const struct rfs_geometry *geometry, const struct rfs_cells *cells,
                      const uint32_t *cell, struct rfs_piece_trace *piece)
{
    for (uint32_t i = 0; i < geometry->ndim; i++) {
        const uint64_t begin = rfs_grid_begin(&geometry->src, geometry->whole, i, cell[i]);
        const uint64_t length = rfs_grid_length(&geometry->src, geometry->whole, i, cell[i]);
        const uint32_t round =
            i == 0 ? cell[0] / (geometry->src.pieces[0] / geometry->src.rounds) : 0;

        set_axis(cells, i, begin, begin + length, round * length, piece);
    }
}

RFS_COMPARE(by_destination, struct rfs_piece_trace, x, y, RFS_ORDER(x->block.dst, y->block.dst))

static int trace_cut(const struct rfs_provider_query *query, uint32_t local, struct rfs_trace *out)
{
    const struct rfs_geometry *geometry = out->geometry;
    struct rfs_cells cells;
    uint32_t cell[RFS_MAX_DIMS];

    rfs_geometry_cells(geometry, local, &cells, cell);
    do {
        const struct rfs_plan_piece piece = rfs_plan_piece_cell(geometry, cell);
        struct rfs_piece_trace *added;
        const uint64_t *strides;
        const int rc = add_piece(query, out->stage, &piece, out, &added, &strides);
        if (rc)
            return rc;
        set_boxes(geometry, &cells, cell, added);
        rfs_geometry_block(geometry, &cells, cell, strides, &added->block);
    } while (rfs_geometry_cells_next(geometry, &cells, cell));
    RFS_SORT(out->pieces, out->n, by_destination);
    return 0;
}

static int trace_copied(const struct rfs_provider_query *query, const struct rfs_target *target,
                        struct rfs_trace *out)
{
    const struct rfs_type *type = rfs_catalog_type(query->planner->config.catalog, target->type);
    const struct rfs_plan_piece piece = rfs_plan_piece_slice(out->src, query->template);
    struct rfs_piece_trace *added;
    const uint64_t *strides;
    const int rc = add_piece(query, out->stage, &piece, out, &added, &strides);

    if (rc)
        return rc;
    memcpy(added->source.len, type->dims, sizeof added->source.len);
    added->whole = added->target = added->source;
    rfs_slice_block_whole(&added->block, type, strides);
    return 0;
}

/* Traces chunks; the rank of a piece is the number of the chunk's file. */
static int trace_chunked(struct rfs_planner *planner, uint32_t local,
                         const struct rfs_target *target, struct rfs_trace *out)
{
    struct rfs_plan_chunk_walk walk;
    int rc = rfs_plan_chunk_begin(planner, local, target, &walk);

    out->devices = 0;
    while (rc == 0 && rfs_plan_chunk_next(&walk)) {
        const struct rfs_chunk_box *part = &walk.part;
        const struct rfs_chunk *chunk = &walk.chunks->chunks.data[part->chunk];
        struct rfs_piece_trace *piece = rfs_trace_add(out);
        if (!piece)
            return -ENOMEM;
        piece->type = chunk->type;
        for (uint32_t i = 0; i < walk.geometry->ndim; i++)
            set_axis(&walk.cells, i, part->at[i], part->at[i] + part->size[i], 0, piece);
        rc = rfs_plan_chunk_block(&walk, &piece->block, NULL);
        piece->rank = piece->first =
            rfs_chunks_file_of(walk.chunks, part->chunk) - walk.chunks->first_file;
    }
    if (rc == 0 && out->n > 0)
        RFS_SORT(out->pieces, out->n, by_destination);
    return rc;
}

int rfs_planner_trace(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                      struct rfs_trace *out)
{
    const uint32_t local = rank % planner->scale.dst_devices;
    const struct rfs_provider_query query = rfs_plan_query_of(planner, local, target);
    const struct rfs_role role =
        rfs_plan_role(planner, target->name, target->stage, rank / planner->scale.dst_devices);

    out->n = 0;
    out->geometry = rfs_planner_geometry(planner, target);
    out->src = role.src;
    out->dst = role.dst;
    out->stage = target->stage;
    out->base = query.base;
    out->devices = planner->scale.src_devices;
    out->differs = query.presence != NULL;
    if (rfs_catalog_type(planner->config.catalog, target->type)->bytes == 0)
        return 0;
    if (rfs_catalog_chunks(planner->config.catalog))
        return trace_chunked(planner, local, target, out);
    struct rfs_use use;
    rfs_catalog_begin(planner->config.catalog, &use);
    const int rc =
        out->geometry ? trace_cut(&query, local, out) : trace_copied(&query, target, out);
    rfs_catalog_end(planner->config.catalog, &use);
    return rc;
}

bool rfs_trace_is_shared(const struct rfs_planner *planner, const struct rfs_target *target)
{
    const struct rfs_catalog *catalog = planner->config.catalog;
    const uint32_t base = rfs_plan_base(planner, target->stage);

    /* Chunks are a tensor's own; so are strides in torch's files, and the rank that has it. */
    if (target->geometry == RFS_NO_ID || rfs_catalog_chunks(catalog) ||
        rfs_catalog_format(catalog) == RFS_FORMAT_TORCH ||
        atomic_load_explicit(&planner->stages[target->stage].presence, memory_order_acquire))
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

void rfs_trace_box(const struct rfs_grid *grid, const uint64_t *whole, uint32_t rank, uint32_t k,
                   struct rfs_box *box)
{
    uint32_t cell[RFS_GRID_DIMS] = {0};

    rfs_grid_cell(grid, rank, cell);
    if (k > 0)
        cell[0] += grid->pieces[0] / grid->rounds * k;
    for (uint32_t i = 0; i < grid->ndim; i++) {
        box->at[i] = rfs_grid_begin(grid, whole, i, cell[i]);
        box->len[i] = rfs_grid_length(grid, whole, i, cell[i]);
    }
}
