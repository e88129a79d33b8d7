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
 * A box of a destination rank, and the source cells that it touches: first[i] … last[i] along each
 * axis. A rank has one box. With field slicing (grid.h) it has geometry->dst.rounds of them.
 */
struct rfs_cells {
    uint64_t lo[RFS_MAX_DIMS]; /* corner of the box in the whole tensor */
    uint64_t hi[RFS_MAX_DIMS]; /* one past its end */
    uint64_t begin;            /* where the box begins in the rank's slice, on begin_axis */
    uint32_t first[RFS_MAX_DIMS];
    uint32_t last[RFS_MAX_DIMS];
    uint32_t dst_rank, round, begin_axis;
};

/* Sets lo, hi, begin and begin_axis of CELLS to box number ROUND of a local destination rank. */
void rfs_geometry_box(const struct rfs_geometry *geometry, uint32_t dst_rank, uint32_t round,
                      struct rfs_cells *cells);
/* Begins with the rank's first box, and sets CELL to the first cell that it touches. */
void rfs_geometry_cells(const struct rfs_geometry *geometry, uint32_t dst_rank,
                        struct rfs_cells *cells, uint32_t *cell);
/* Begins with the box from lo to hi of CELLS, which is not empty; no other box follows. */
void rfs_geometry_cells_in(const struct rfs_geometry *geometry, struct rfs_cells *cells,
                           uint32_t *cell);
/*
 * Steps CELL through the cells of a box in row-major order, then to the next box; false after the
 * last.
 */
bool rfs_geometry_cells_next(const struct rfs_geometry *geometry, struct rfs_cells *cells,
                             uint32_t *cell);

/* A box of the whole tensor, as a source slice or a chunk stores it. */
struct rfs_geometry_stored {
    uint64_t at[RFS_MAX_DIMS];     /* corner in the whole tensor */
    uint64_t size[RFS_MAX_DIMS];   /* elements along each axis */
    uint64_t stride[RFS_MAX_DIMS]; /* bytes */
    uint64_t begin;                /* where the box begins in the source slice, on begin_axis */
    uint32_t begin_axis;
    bool strided; /* its elements do not lie row by row */
};

/*
 * Gives the box of source CELL. STRIDES, in bytes, are those of the source slice if it is not
 * row-major, else NULL.
 */
void rfs_geometry_cell(const struct rfs_geometry *geometry, const uint32_t *cell,
                       const uint64_t *strides, struct rfs_geometry_stored *out);
/* Sets the copy from a stored box into the destination's; file and content are left alone. */
void rfs_geometry_block(const struct rfs_geometry *geometry, const struct rfs_cells *cells,
                        const struct rfs_geometry_stored *stored, struct rfs_block *block);
