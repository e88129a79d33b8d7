/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One way of cutting one type of tensor: the grid it is stored under and the grid it is wanted under.
 * Many parameters of a model share a geometry. Immutable once resolved.
 */
#ifndef RFS_PLAN_GEOMETRY_H
#define RFS_PLAN_GEOMETRY_H

#include "layout/grid.h"
#include "plan/slice.h"

struct rfs_geometry {
    uint32_t ndim;
    uint32_t item;     /* bytes of an element */
    uint32_t dst_type; /* of a destination slice; id in the catalogue's types, set by the planner */
    uint64_t whole[RFS_MAX_DIMS];
    uint64_t src_dims[RFS_MAX_DIMS]; /* of a source slice */
    uint64_t dst_dims[RFS_MAX_DIMS]; /* of a destination slice */
    struct rfs_grid src, dst;
};

/* LAYOUT NULL: one device. Errors as rfs_grid_resolve's. */
int rfs_geometry_resolve(const struct rfs_type *slice_type, const struct rfs_layout *src,
                         const struct rfs_layout *dst, const char *src_name, const char *dst_name,
                         const char *param, struct rfs_geometry *out, struct rfs_error *err);

/* The source cells that a destination rank's box touches: first[i] … last[i] along each axis. */
struct rfs_cells {
    uint32_t first[RFS_MAX_DIMS];
    uint32_t last[RFS_MAX_DIMS];
    uint64_t lo[RFS_MAX_DIMS]; /* corner of the destination box in the whole tensor */
};

void rfs_geometry_cells(const struct rfs_geometry *geometry, uint32_t dst_rank,
                        struct rfs_cells *cells);
/* Steps CELL through the range in row-major order, from first; false after the last. */
bool rfs_cells_next(const struct rfs_cells *cells, uint32_t ndim, uint32_t *cell);

/* The strided copy from source CELL into the destination box; file, index and entry are left alone. */
void rfs_geometry_block(const struct rfs_geometry *geometry, const struct rfs_cells *cells,
                        const uint32_t *cell, struct rfs_block *block);

#endif
