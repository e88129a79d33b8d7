/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room: plans of a checkpoint that describes itself. To the planner it is unsharded:
 * rank 0 lists whole tensors. Only the slices taken of them come from chunks, which this file
 * finds.
 */
#pragma once

#include "formats/chunks/chunks.h"
#include "plan/internal.h"

/* The chunks that a target of a local destination rank touches, box by box. */
struct rfs_chunked_walk {
    const struct rfs_chunks *boxes;
    const struct rfs_chunked_tensor *tensor;
    const struct rfs_geometry *geometry; /* the planner's, or copied */
    struct rfs_geometry copied;          /* of a target that is not cut */
    struct rfs_cells cells;              /* the box of the destination */
    uint32_t cell[RFS_MAX_DIMS];
    struct rfs_chunk_walk chunks;
    struct rfs_chunk_part part; /* the present one */
};
/* TARGET has bytes. 0 or -errno. */
int rfs_chunked_walk_begin(struct rfs_planner *planner, uint32_t local,
                           const struct rfs_target *target, struct rfs_chunked_walk *walk);
/* The next part of a chunk; false at the end. */
bool rfs_chunked_walk_next(struct rfs_chunked_walk *walk);
/* The bytes of the present part that the target takes. 0 or -errno with *err filled. */
int rfs_chunked_walk_block(struct rfs_chunked_walk *walk, struct rfs_block *block,
                           struct rfs_error *err);

/*
 * Finds further copy COPY of the present chunk, from 0 on: 1 when it is one, 0 with *err filled
 * (the file cannot be read) or not (*out says that it has something else there), or -errno.
 */
int rfs_chunked_walk_copy(const struct rfs_chunked_walk *walk, uint32_t copy,
                          struct rfs_chunked_copy *out, struct rfs_error *err);

/* The tensor of a target; NULL: there is none. */
const struct rfs_chunked_tensor *rfs_plan_chunked_tensor(const struct rfs_planner *planner,
                                                         const struct rfs_target *target);
/*
 * Adds the blocks of a target to an empty slice, ascending by destination; of copy COPY, as
 * rfs_planner_copy has it, with the number of blocks that are not those of copy 0 in *others. 0 or
 * -errno.
 */
int rfs_plan_chunked_slice(struct rfs_planner *planner, uint32_t local,
                           const struct rfs_target *target, uint32_t copy, struct rfs_slice *slice,
                           size_t *others);
/*
 * Finds where all chunks of a plan are in their files, and takes those files into its attributes. 0
 * or -errno with *err filled.
 */
int rfs_plan_chunked_attributes(struct planning *planning, struct rfs_rank_plan *plan);
/*
 * Compares copies of the tensors of a plan whose chunks are located; boxed_copies.c. Copies that
 * differ are refused by strict, else reported in the log. 0 or -errno with *err filled.
 */
int rfs_plan_compare_copies(struct planning *planning, const struct rfs_params *params);
