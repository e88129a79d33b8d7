/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One way of cutting one type of tensor: the grid it is stored under and the requested grid. Many
 * parameters of a model share a geometry. Immutable once resolved.
 */
#pragma once

#include "layout/grid.h"
#include "plan/slice.h"

struct rfs_geometry {
    uint32_t ndim;
    uint32_t item;     /* bytes of an element */
    uint8_t dtype;     /* enum rfs_dtype; set by the planner */
    uint32_t dst_type; /* type of a destination slice, id in the catalogue; set by the planner */
    uint64_t whole[RFS_MAX_DIMS];
    /* extents of slices; where a grid has edges, axis 0 is that of some rank */
    uint64_t src_dims[RFS_MAX_DIMS];
    uint64_t dst_dims[RFS_MAX_DIMS];
    struct rfs_grid src, dst;
};

/*
 * Resolves the geometry of slices of a type. A layout that is NULL is of one device. The names are
 * for messages. Fails like rfs_grid_resolve.
 */
int rfs_geometry_resolve(const struct rfs_type *slice_type, const struct rfs_layout *src,
                         const struct rfs_layout *dst, const char *src_name, const char *dst_name,
                         const char *param, struct rfs_geometry *out, struct rfs_error *err);

/*
 * The source cells that a destination rank's boxes touch, one box after the other: first[i] …
 * last[i] along each axis. A rank has one box, but for field slicing (grid.h), where it has
 * geometry->dst.rounds.
 */
struct rfs_cells {
    uint32_t first[RFS_MAX_DIMS];
    uint32_t last[RFS_MAX_DIMS];
    uint64_t lo[RFS_MAX_DIMS]; /* corner of the destination box in the whole tensor */
    uint64_t hi[RFS_MAX_DIMS]; /* one past its end */
    uint64_t row;              /* where the box begins in the slice */
    uint32_t dst_rank, round;
};

/* Sets CELLS to the rank's first box, and CELL to the first cell that it touches. */
void rfs_geometry_cells(const struct rfs_geometry *geometry, uint32_t dst_rank,
                        struct rfs_cells *cells, uint32_t *cell);
/*
 * Steps CELL through the cells of a box in row-major order, then to the next box; false after the
 * last.
 */
bool rfs_geometry_cells_next(const struct rfs_geometry *geometry, struct rfs_cells *cells,
                             uint32_t *cell);

/*
 * Sets the copy from source CELL into the destination box; file and content are left alone.
 * STRIDES, in bytes, are those of the source slice if it is not row-major, else NULL.
 */
void rfs_geometry_block(const struct rfs_geometry *geometry, const struct rfs_cells *cells,
                        const uint32_t *cell, const uint64_t *strides, struct rfs_block *block);

/*
 * Sets the copy from a box of the whole tensor that begins at AT and has SIZE elements, with
 * STRIDES in bytes. STRIDED is that of the block.
 */
void rfs_geometry_block_from(const struct rfs_geometry *geometry, const struct rfs_cells *cells,
                             const uint64_t *at, const uint64_t *size, const uint64_t *strides,
                             bool strided, struct rfs_block *block);
