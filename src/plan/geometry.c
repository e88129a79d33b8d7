/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/geometry.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "plan/internal.h"

_Static_assert(RFS_GRID_DIMS == RFS_MAX_DIMS, "grids and types have the same number of axes");

int rfs_geometry_resolve(const struct rfs_type *slice_type, const struct rfs_layout *src,
                         const struct rfs_layout *dst, const char *src_name, const char *dst_name,
                         const char *param, struct rfs_geometry *out, struct rfs_error *err)
{
    memset(out, 0, sizeof *out);
    out->ndim = slice_type->ndim;
    out->item = rfs_dtype_bytes((enum rfs_dtype)slice_type->dtype);
    memcpy(out->src_dims, slice_type->dims, sizeof out->src_dims);
    if (src) {
        int rc = rfs_grid_resolve_for(src, dst, out->ndim, out->src_dims, RFS_DIMS_OF_SLICE,
                                      &out->src, out->whole, NULL, RFS_OF(src_name, param), err);
        if (rc)
            return rc;
    } else {
        rfs_grid_single(out->ndim, &out->src);
        memcpy(out->whole, out->src_dims, sizeof out->whole);
    }
    uint64_t bytes = out->item;
    for (uint32_t i = 0; i < out->ndim; i++)
        if (!rfs_mul_u64(bytes, out->whole[i], &bytes) || bytes > INT64_MAX)
            return rfs_fail(err, -EINVAL, RFS_OF(src_name, param), NULL,
                            "the whole tensor would have more than 2^63 bytes");
    if (dst)
        return rfs_grid_resolve(dst, out->ndim, out->whole, RFS_DIMS_OF_WHOLE, &out->dst, NULL,
                                out->dst_dims, RFS_OF(dst_name, param), err);
    rfs_grid_single(out->ndim, &out->dst);
    memcpy(out->dst_dims, out->whole, sizeof out->dst_dims);
    return 0;
}

void rfs_geometry_box(const struct rfs_geometry *geometry, uint32_t dst_rank, uint32_t round,
                      struct rfs_cells *cells)
{
    struct rfs_box box;

    rfs_grid_box(&geometry->dst, geometry->whole, dst_rank, round, &box);
    for (uint32_t i = 0; i < geometry->ndim; i++) {
        cells->lo[i] = box.at[i];
        cells->hi[i] = box.at[i] + box.len[i];
    }
    cells->begin_axis = geometry->dst.round_axis;
    cells->begin = round > 0 ? box.len[cells->begin_axis] * round : 0;
}

/* Sets the cells that the box of CELLS touches, and CELL to the first. */
static void set_cells(const struct rfs_geometry *geometry, struct rfs_cells *cells, uint32_t *cell)
{
    for (uint32_t i = 0; i < geometry->ndim; i++) {
        cell[i] = cells->first[i] =
            rfs_grid_piece(&geometry->src, geometry->whole, i, cells->lo[i]);
        cells->last[i] = rfs_grid_piece(&geometry->src, geometry->whole, i, cells->hi[i] - 1);
    }
}

void rfs_geometry_cells(const struct rfs_geometry *geometry, uint32_t dst_rank,
                        struct rfs_cells *cells, uint32_t *cell)
{
    cells->dst_rank = dst_rank;
    cells->round = 0;
    rfs_geometry_box(geometry, dst_rank, 0, cells);
    set_cells(geometry, cells, cell);
}

void rfs_geometry_cells_in(const struct rfs_geometry *geometry, struct rfs_cells *cells,
                           uint32_t *cell)
{
    cells->round = geometry->dst.rounds;
    set_cells(geometry, cells, cell);
}

bool rfs_geometry_cells_next(const struct rfs_geometry *geometry, struct rfs_cells *cells,
                             uint32_t *cell)
{
    for (uint32_t i = geometry->ndim; i-- > 0;) {
        if (cell[i] < cells->last[i]) {
            cell[i]++;
            return true;
        }
        cell[i] = cells->first[i];
    }
    if (++cells->round >= geometry->dst.rounds)
        return false;
    rfs_geometry_box(geometry, cells->dst_rank, cells->round, cells);
    set_cells(geometry, cells, cell);
    return true;
}

void rfs_geometry_cell(const struct rfs_geometry *geometry, const uint32_t *cell,
                       const uint64_t *strides, struct rfs_geometry_stored *out)
{
    const struct rfs_grid *src = &geometry->src;
    uint64_t step = geometry->item;

    for (uint32_t i = geometry->ndim; i-- > 0; step *= geometry->src_dims[i]) {
        out->at[i] = rfs_grid_begin(src, geometry->whole, i, cell[i]);
        out->size[i] = rfs_grid_length(src, geometry->whole, i, cell[i]);
        out->stride[i] = strides ? strides[i] : step;
    }
    const uint32_t axis = src->round_axis;
    out->begin_axis = axis;
    out->begin =
        src->rounds > 1 ? cell[axis] / (src->pieces[axis] / src->rounds) * out->size[axis] : 0;
    out->strided = strides != NULL;
}

void rfs_geometry_block(const struct rfs_geometry *geometry, const struct rfs_cells *cells,
                        const struct rfs_geometry_stored *stored, struct rfs_block *block)
{
    uint64_t len[RFS_MAX_DIMS];
    uint64_t dst_stride[RFS_MAX_DIMS];
    uint64_t dst_step = geometry->item;

    block->dst = 0;
    block->src = 0;
    block->strided = stored->strided;
    for (uint32_t i = geometry->ndim; i-- > 0;) {
        const uint64_t lo = rfs_max_u64(cells->lo[i], stored->at[i]);
        len[i] = rfs_min_u64(cells->hi[i], stored->at[i] + stored->size[i]) - lo;
        dst_stride[i] = dst_step;
        block->dst += (lo - cells->lo[i] + (i == cells->begin_axis ? cells->begin : 0)) * dst_step;
        block->src += (lo - stored->at[i] + (i == stored->begin_axis ? stored->begin : 0)) *
                      stored->stride[i];
        dst_step *= geometry->dst_dims[i];
    }
    rfs_slice_block_box(block, geometry->ndim, len, geometry->item, dst_stride, stored->stride);
}

/* ---- the table of a planner ------------------------------------------------------------------ */

/* Determines a geometry. No padding: it is a key of a table. */
struct key {
    const struct rfs_layout *src;
    const struct rfs_layout *dst;
    uint64_t type; /* of the source slice */
};

static uint32_t add_type(struct rfs_planner *planner, const struct rfs_geometry *geometry,
                         const uint64_t *dims)
{
    struct rfs_type type = {.bytes = geometry->item,
                            .ndim = (uint8_t)geometry->ndim,
                            .dtype = geometry->dtype,
                            .kind = RFS_TENSOR};

    for (uint32_t i = 0; i < geometry->ndim; i++) {
        type.dims[i] = dims[i];
        type.bytes *= dims[i];
    }
    return rfs_intern_add(rfs_catalog_tables(planner->config.catalog)->types, &type, sizeof type);
}

static int resolve(struct rfs_planner *planner, const struct key *key, const char *param,
                   struct rfs_geometry *out, struct rfs_error *err)
{
    const struct rfs_planner_config *config = &planner->config;
    const struct rfs_type *slice = rfs_catalog_type(config->catalog, (uint32_t)key->type);
    const char *src_name = config->src ? rfs_strategy_name(config->src) : NULL;
    const char *dst_name = config->dst ? rfs_strategy_name(config->dst) : NULL;
    const int rc =
        rfs_geometry_resolve(slice, key->src, key->dst, src_name, dst_name, param, out, err);
    if (rc)
        return rc;

    out->dtype = slice->dtype;
    out->dst_type = add_type(planner, out, out->dst_dims);
    return out->dst_type == RFS_NO_ID ? rfs_fail_memory(err) : 0;
}

int rfs_plan_target_type(struct rfs_planner *planner, const struct rfs_geometry *geometry,
                         uint32_t local, uint32_t *type)
{
    uint64_t dims[RFS_MAX_DIMS];

    *type = geometry->dst_type;
    if (!geometry->dst.edge)
        return 0;
    rfs_grid_slice(&geometry->dst, geometry->whole, local, dims);
    *type = add_type(planner, geometry, dims);
    return *type == RFS_NO_ID ? -ENOMEM : 0;
}

/*
 * Returns the type of the first slice of a manual split, or TYPE itself when it is no slice of the
 * split, which is refused then. Slices of a split differ in their rows, and make one geometry all
 * the same.
 */
static uint32_t first_slice(struct rfs_planner *planner, const struct rfs_layout *layout,
                            uint32_t type)
{
    struct rfs_type slice = *rfs_catalog_type(planner->config.catalog, type);
    bool known = false;

    for (uint32_t k = 0; slice.ndim > 0 && !known && k + 1 < layout->n_edges; k++)
        known = layout->edge[k + 1] - layout->edge[k] == slice.dims[0];
    if (!known || !rfs_mul_u64(slice.bytes / slice.dims[0], layout->edge[1], &slice.bytes))
        return type;
    slice.dims[0] = layout->edge[1];
    return rfs_intern_add(rfs_catalog_tables(planner->config.catalog)->types, &slice, sizeof slice);
}

int rfs_plan_geometry(struct rfs_planner *planner, const struct rfs_role *role, uint32_t type,
                      uint32_t name, uint32_t *id, struct rfs_error *err)
{
    struct key key = {role->src, role->dst, type};

    if (role->src && role->src->edge)
        key.type = first_slice(planner, role->src, type);
    *id = RFS_NO_ID;
    if (key.type == RFS_NO_ID)
        return rfs_fail_memory(err);
    const uint32_t found = rfs_intern_add(planner->geometry_ids, &key, sizeof key);
    if (found == RFS_NO_ID)
        return rfs_fail_memory(err);
    if (!rfs_plan_geometry_at(planner, found)) {
        RFS_FREE struct rfs_geometry *fresh = malloc(sizeof *fresh);
        if (!fresh)
            return rfs_fail_memory(err);
        const int rc =
            resolve(planner, &key, rfs_catalog_name(planner->config.catalog, name), fresh, err);
        if (rc)
            return rc;
        RFS_LOCKED(&planner->lock);
        struct rfs_geometry **at = RFS_VEC_AT(&planner->geometries, found, NULL);
        if (!at)
            return rfs_fail_memory(err);
        if (!*at) /* else another thread was faster */
            *at = RFS_STEAL(fresh);
    }
    *id = found;
    return 0;
}

const struct rfs_geometry *rfs_plan_geometry_at(struct rfs_planner *planner, uint32_t id)
{
    RFS_LOCKED(&planner->lock);
    return id < planner->geometries.n ? planner->geometries.data[id] : NULL;
}
