/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/geometry.h"

#include "base/checked.h"

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

/* The box of a round, and the cells that it touches. */
static void set_box(const struct rfs_geometry *geometry, struct rfs_cells *cells, uint32_t *cell)
{
    const struct rfs_grid *dst = &geometry->dst;
    uint32_t dst_cell[RFS_GRID_DIMS] = {0};

    rfs_grid_cell(dst, cells->dst_rank, dst_cell);
    if (cells->round > 0)
        dst_cell[0] += dst->pieces[0] / dst->rounds * cells->round;
    for (uint32_t i = 0; i < geometry->ndim; i++) {
        const uint64_t lo = rfs_grid_begin(dst, geometry->whole, i, dst_cell[i]);
        const uint64_t hi = lo + rfs_grid_length(dst, geometry->whole, i, dst_cell[i]);
        cells->lo[i] = lo;
        cells->hi[i] = hi;
        cells->first[i] = rfs_grid_piece(&geometry->src, geometry->whole, i, lo);
        cells->last[i] = rfs_grid_piece(&geometry->src, geometry->whole, i, hi - 1);
        cell[i] = cells->first[i];
    }
    cells->row = cells->round > 0 ? (cells->hi[0] - cells->lo[0]) * cells->round : 0;
}

void rfs_geometry_cells(const struct rfs_geometry *geometry, uint32_t dst_rank,
                        struct rfs_cells *cells, uint32_t *cell)
{
    cells->dst_rank = dst_rank;
    cells->round = 0;
    set_box(geometry, cells, cell);
}

bool rfs_cells_next(const struct rfs_geometry *geometry, struct rfs_cells *cells, uint32_t *cell)
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
    set_box(geometry, cells, cell);
    return true;
}

/* A box of the whole tensor that is stored: its part of a source slice. */
struct stored {
    uint64_t at[RFS_MAX_DIMS];     /* in the whole tensor */
    uint64_t size[RFS_MAX_DIMS];   /* in elements */
    uint64_t stride[RFS_MAX_DIMS]; /* in bytes */
    uint64_t row;                  /* of the slice, where the box begins */
};

static void set_block(const struct rfs_geometry *geometry, const struct rfs_cells *cells,
                      const struct stored *stored, struct rfs_block *block)
{
    uint64_t len[RFS_MAX_DIMS];
    uint64_t dst_stride[RFS_MAX_DIMS];
    uint64_t dst_step = geometry->item;

    block->dst = 0;
    block->src = 0;
    block->n_loops = 0;
    for (uint32_t i = geometry->ndim; i-- > 0;) {
        const uint64_t lo = rfs_max_u64(cells->lo[i], stored->at[i]);
        len[i] = rfs_min_u64(cells->hi[i], stored->at[i] + stored->size[i]) - lo;
        dst_stride[i] = dst_step;
        block->dst += (lo - cells->lo[i] + (i == 0 ? cells->row : 0)) * dst_step;
        block->src += (lo - stored->at[i] + (i == 0 ? stored->row : 0)) * stored->stride[i];
        dst_step *= geometry->dst_dims[i];
    }
    rfs_block_box(block, geometry->ndim, len, geometry->item, dst_stride, stored->stride);
}

void rfs_geometry_block(const struct rfs_geometry *geometry, const struct rfs_cells *cells,
                        const uint32_t *cell, const uint64_t *strides, struct rfs_block *block)
{
    struct stored stored = {.row = 0};
    uint64_t step = geometry->item;

    for (uint32_t i = geometry->ndim; i-- > 0; step *= geometry->src_dims[i]) {
        stored.at[i] = rfs_grid_begin(&geometry->src, geometry->whole, i, cell[i]);
        stored.size[i] = rfs_grid_length(&geometry->src, geometry->whole, i, cell[i]);
        stored.stride[i] = strides ? strides[i] : step;
    }
    if (geometry->ndim > 0)
        stored.row = cell[0] / (geometry->src.pieces[0] / geometry->src.rounds) * stored.size[0];
    block->strided = strides != NULL;
    set_block(geometry, cells, &stored, block);
}

void rfs_geometry_block_from(const struct rfs_geometry *geometry, const struct rfs_cells *cells,
                             const uint64_t *at, const uint64_t *size, const uint64_t *strides,
                             bool strided, struct rfs_block *block)
{
    struct stored stored = {.row = 0};

    for (uint32_t i = geometry->ndim; i-- > 0;) {
        stored.at[i] = at[i];
        stored.size[i] = size[i];
        stored.stride[i] = strides[i];
    }
    block->strided = strided;
    set_block(geometry, cells, &stored, block);
}
