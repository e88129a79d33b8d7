/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layout on a tensor of known rank: a grid of cells, each held by one or more ranks.
 *
 * Axis i of the tensor is cut into pieces[i] equal parts, so rank r of the stage holds the box
 * whose corner is cell(r)[i] * full[i] / pieces[i]. On axis 0 the parts may be unequal (a manual
 * split), or along an axis a a rank may hold several cells, one behind the other in its slice
 * (field slicing): cell(r)[a], and those pieces[a] / rounds, 2 * pieces[a] / rounds, … further on.
 * Every cut (of a
 * device axis, or of a part of one, by the tensor map or by the optimizer shard) is a digit of the
 * rank: digit = (rank / stride) % extent. The digits that cut nothing are the replicas.
 *
 * Ranks here are local to a stage: 0 … ranks-1. Pure arithmetic; no allocation; thread-safe.
 */
#pragma once

#include "layout/strategy.h"

#define RFS_GRID_DIMS 16
#define RFS_MAX_DIGITS (RFS_MAX_CUTS + RFS_MAX_DEVICE_AXES)

/* A box of elements. */
struct rfs_box {
    uint64_t at[RFS_GRID_DIMS];
    uint64_t len[RFS_GRID_DIMS];
};

struct rfs_digit {
    uint32_t stride; /* in ranks */
    uint32_t extent;
    int32_t axis;    /* the tensor axis that it cuts, or -1: replicas */
    uint32_t weight; /* how many cells along the axis one step of this digit moves */
};

struct rfs_grid {
    uint32_t ndim;
    uint32_t ranks;
    uint32_t replicas;              /* ranks that hold one cell */
    uint32_t pieces[RFS_GRID_DIMS]; /* of each tensor axis; axis 0 includes the optimizer shard */
    /* cells that a rank holds: 1, or with field slicing a divisor of the cells of round_axis */
    uint32_t rounds, round_axis;
    /* the layout's: piece k of axis 0 is edge[k] … edge[k + 1]; NULL: equal ones */
    const uint64_t *edge;
    uint32_t n_digits;
    struct rfs_digit digits[RFS_MAX_DIGITS]; /* together they are the rank, exactly once */
};

/* Says what the dims given to rfs_grid_resolve are. */
enum rfs_dims_of { RFS_DIMS_OF_SLICE, RFS_DIMS_OF_WHOLE };

/*
 * Makes the grid of LAYOUT on a tensor with NDIM dims. The dims serve to find the axes of flattened
 * (JSON) nested maps again, and to check that a whole tensor divides. On success also gives the
 * dims of the whole tensor and of the slice of rank 0 (either may be NULL). -EINVAL with *err
 * filled, at WHERE, when the layout does not fit the tensor.
 */
int rfs_grid_resolve(const struct rfs_layout *layout, uint32_t ndim, const uint64_t *dims,
                     enum rfs_dims_of meaning, struct rfs_grid *grid, uint64_t *whole,
                     uint64_t *slice, struct rfs_where where, struct rfs_error *err);

/*
 * Makes a grid as rfs_grid_resolve does, for a tensor that PEER (may be NULL) is to fit too: the
 * layout of the other side. Where a flattened map and the slices leave several whole shapes
 * possible, which rfs_grid_resolve refuses, the one that PEER fits is taken.
 */
int rfs_grid_resolve_for(const struct rfs_layout *layout, const struct rfs_layout *peer,
                         uint32_t ndim, const uint64_t *dims, enum rfs_dims_of meaning,
                         struct rfs_grid *grid, uint64_t *whole, uint64_t *slice,
                         struct rfs_where where, struct rfs_error *err);

/* Makes the grid of one device that holds the whole tensor. */
void rfs_grid_single(uint32_t ndim, struct rfs_grid *grid);

/* Returns where a piece of an axis begins in a tensor of WHOLE dims. */
uint64_t rfs_grid_begin(const struct rfs_grid *grid, const uint64_t *whole, uint32_t axis,
                        uint32_t piece);
/* Returns the length of a piece of an axis in a tensor of WHOLE dims. */
uint64_t rfs_grid_length(const struct rfs_grid *grid, const uint64_t *whole, uint32_t axis,
                         uint32_t piece);
/* Returns the piece of an axis that position AT of it, which must be below whole[axis], is in. */
uint32_t rfs_grid_piece(const struct rfs_grid *grid, const uint64_t *whole, uint32_t axis,
                        uint64_t at);
/* Gives the dims of the slice of a rank. */
void rfs_grid_slice(const struct rfs_grid *grid, const uint64_t *whole, uint32_t rank,
                    uint64_t *dims);

/*
 * Gives box ROUND, in a tensor of WHOLE dims, of a rank, which has grid->rounds of them. Sets the
 * axes that the grid has.
 */
void rfs_grid_box(const struct rfs_grid *grid, const uint64_t *whole, uint32_t rank, uint32_t round,
                  struct rfs_box *box);

/* Gives the cell of a rank; of several, the first. */
void rfs_grid_cell(const struct rfs_grid *grid, uint32_t rank, uint32_t *cell);
/*
 * Returns the rank that holds CELL and has the digits of TEMPLATE in every digit that cuts nothing.
 */
uint32_t rfs_grid_holder(const struct rfs_grid *grid, const uint32_t *cell, uint32_t template);
/* Returns the k-th rank, ascending, of the replicas of the cell that RANK holds; k < replicas. */
uint32_t rfs_grid_replica(const struct rfs_grid *grid, uint32_t rank, uint32_t k);
