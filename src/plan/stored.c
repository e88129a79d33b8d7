/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/stored.h"

#include "formats/chunks/chunks.h"

/* One walk, over the boxes of one target. */
struct walk {
    struct rfs_planner *planner;
    const struct rfs_target *target;
    struct provider_query provider_query;
    rfs_stored_fn *each;
    void *ctx;
};

static void set_row_major(const struct rfs_type *type, const uint64_t *dims,
                          struct rfs_stored *stored)
{
    uint64_t step = rfs_dtype_bytes((enum rfs_dtype)type->dtype);

    for (uint32_t i = type->ndim; i-- > 0; step *= dims[i])
        stored->stride[i] = step;
}

/* Sets the file and the strides of a rank's slice of it. */
static int locate(const struct walk *walk, const struct piece *piece, const uint64_t *dims,
                  struct rfs_stored *stored)
{
    struct rfs_catalog *catalog = walk->planner->config.catalog;
    const struct rfs_target *target = walk->target;
    const uint32_t rank = rfs_plan_provider(&walk->provider_query, piece);
    const struct rfs_index *index = NULL;
    const int rc =
        rank == RFS_NO_RANK
            ? -EIO
            : rfs_catalog_index(catalog, rank, atomic_load(&walk->planner->leads[target->stage]),
                                &index, NULL);
    const struct rfs_entry *entry = rc ? NULL : rfs_index_find(index, target->name);

    if (!entry)
        return rc ? rc : -EIO;
    const struct rfs_type *type = rfs_catalog_type(catalog, entry->type);
    const uint64_t *strides = rfs_index_strides(index, entry);
    stored->rank = rank;
    stored->file = rfs_catalog_entry_file(catalog, rank, index, entry);
    if (strides)
        memcpy(stored->stride, strides, type->ndim * sizeof *strides);
    else
        set_row_major(type, dims, stored);
    return rfs_catalog_content(catalog, index, entry, &stored->content);
}

static int walk_copied(const struct walk *walk)
{
    const struct rfs_planner *planner = walk->planner;
    const struct rfs_target *target = walk->target;
    const struct rfs_role_rules rules = rfs_plan_rules(planner);
    const struct rfs_role_name name = rfs_plan_name(planner, target->name);
    const struct rfs_layout *layout = rfs_role_source_layout(&rules, &name, target->stage);
    const struct piece piece = rfs_piece_slice(layout, walk->provider_query.template);
    const struct rfs_type *type = rfs_catalog_type(planner->config.catalog, target->type);
    struct rfs_stored stored = {.begin = 0};

    memcpy(stored.size, type->dims, sizeof stored.size);
    const int rc = locate(walk, &piece, type->dims, &stored);
    return rc ? rc : walk->each(walk->ctx, &stored);
}

/* The pieces of axes that a box touches. */
static int walk_cut(const struct walk *walk, const struct rfs_geometry *geometry,
                    const uint64_t *lo, const uint64_t *hi)
{
    const struct rfs_grid *grid = &geometry->src;
    uint32_t first[RFS_MAX_DIMS] = {0};
    uint32_t last[RFS_MAX_DIMS] = {0};
    uint32_t cell[RFS_MAX_DIMS] = {0};

    for (uint32_t i = 0; i < geometry->ndim; i++) {
        cell[i] = first[i] = rfs_grid_piece(grid, geometry->whole, i, lo[i]);
        last[i] = rfs_grid_piece(grid, geometry->whole, i, hi[i] - 1);
    }
    for (;;) {
        const struct piece piece = rfs_piece_cell(geometry, cell);
        struct rfs_stored stored = {.begin = 0};
        int rc = locate(walk, &piece, geometry->src_dims, &stored);
        for (uint32_t i = 0; i < geometry->ndim; i++) {
            stored.at[i] = rfs_grid_begin(grid, geometry->whole, i, cell[i]);
            stored.size[i] = rfs_grid_length(grid, geometry->whole, i, cell[i]);
        }
        if (geometry->ndim > 0)
            stored.slice_at[0] = cell[0] / (grid->pieces[0] / grid->rounds) * stored.size[0];
        stored.begin = stored.slice_at[0] * stored.stride[0];
        rc = rc ? rc : walk->each(walk->ctx, &stored);
        if (rc)
            return rc;
        uint32_t i = geometry->ndim;
        while (i > 0 && cell[i - 1] == last[i - 1]) {
            cell[i - 1] = first[i - 1];
            i--;
        }
        if (i == 0)
            return 0;
        cell[i - 1]++;
    }
}

static int walk_boxed(const struct walk *walk, const uint64_t *lo, const uint64_t *hi)
{
    struct rfs_catalog *catalog = walk->planner->config.catalog;
    struct rfs_chunks *boxes = rfs_catalog_chunks(catalog);
    size_t length;
    const char *name = (const char *)rfs_intern_bytes(rfs_catalog_tables(catalog)->names,
                                                      walk->target->name, &length);
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(boxes, name, length);
    struct rfs_chunk_walk chunks;
    struct rfs_chunk_part part;

    if (!tensor)
        return -EIO;
    rfs_chunk_walk_begin(boxes, tensor, lo, hi, &chunks);
    while (rfs_chunk_walk_next(&chunks, &part)) {
        struct rfs_stored stored = {.begin = 0};
        struct rfs_stored_part place;
        struct rfs_error err = {0};
        int rc = rfs_chunks_locate_part(boxes, &part, &place, &err);
        if (rc && err.text[0])
            rfs_log_limited(walk->planner->config.log, RFS_ERROR, "%s", err.text);
        if (rc)
            return rc;
        stored.file = place.file;
        stored.rank = place.file - boxes->first_file;
        stored.content = (struct rfs_content){.offset = place.at};
        memcpy(stored.at, part.at, sizeof stored.at);
        memcpy(stored.size, part.size, sizeof stored.size);
        memcpy(stored.stride, place.stride, sizeof stored.stride);
        rc = walk->each(walk->ctx, &stored);
        if (rc)
            return rc;
    }
    return 0;
}

int rfs_plan_stored(struct rfs_planner *planner, const struct rfs_target *target,
                    const uint64_t *lo, const uint64_t *hi, rfs_stored_fn *each, void *ctx)
{
    const struct walk walk = {
        .planner = planner,
        .target = target,
        .provider_query = {planner,
                           atomic_load_explicit(&planner->presences[target->stage],
                                                memory_order_acquire),
                           rfs_plan_base(planner, target->stage), target->name, 0},
        .each = each,
        .ctx = ctx,
    };

    if (rfs_catalog_chunks(planner->config.catalog))
        return walk_boxed(&walk, lo, hi);
    return target->geometry == RFS_NO_ID
               ? walk_copied(&walk)
               : walk_cut(&walk, rfs_plan_geometry_at(planner, target->geometry), lo, hi);
}
