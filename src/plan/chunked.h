/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of a checkpoint that describes itself, for this room. To the planner it is unsharded: rank
 * 0 lists whole tensors. Only the slices taken of them come from chunks, which chunked.c finds.
 */
#pragma once

#include "formats/chunks/chunks.h"
#include "plan/internal.h"

/* Returns the tensor of a target, or NULL. */
const struct rfs_chunked_tensor *rfs_plan_chunked_tensor(const struct rfs_planner *planner,
                                                         const struct rfs_target *target);

/* The chunks that a target of a local destination rank touches, box by box. */
struct rfs_plan_chunk_walk {
    struct rfs_chunks *chunks;
    const struct rfs_chunked_tensor *tensor;
    const struct rfs_geometry *geometry; /* the planner's, or copied */
    struct rfs_geometry copied;          /* of a target that is not cut */
    struct rfs_cells cells;              /* the box of the destination */
    uint32_t cell[RFS_MAX_DIMS];
    struct rfs_chunks_walk inner; /* over the chunks that this box touches */
    struct rfs_chunk_box part;    /* the present one */
};
/* Begins a walk for a target that has bytes. 0 or -errno. */
int rfs_plan_chunk_begin(struct rfs_planner *planner, uint32_t local,
                         const struct rfs_target *target, struct rfs_plan_chunk_walk *walk);
/* Goes to the next part of a chunk; false at the end. */
bool rfs_plan_chunk_next(struct rfs_plan_chunk_walk *walk);
/*
 * Sets *block to the bytes of the present part that the target takes. 0 or -errno with *err filled.
 */
int rfs_plan_chunk_block(struct rfs_plan_chunk_walk *walk, struct rfs_block *block,
                         struct rfs_error *err);

/*
 * Adds the blocks of a target to an empty slice, ascending by destination: those of copy COPY, as
 * rfs_planner_copy has it, with the number of blocks that are not those of copy 0 in *others. 0 or
 * -errno.
 */
int rfs_plan_chunked_slice(struct rfs_planner *planner, uint32_t local,
                           const struct rfs_target *target, uint32_t copy, struct rfs_slice *slice,
                           size_t *others);
/* Does rfs_planner_copies for a target with bytes. */
uint32_t rfs_plan_chunked_copies(struct rfs_planner *planner, const struct rfs_target *target);
/* Does rfs_planner_bad_copies for a target with bytes of a local destination rank. */
int rfs_plan_chunked_bad_copies(struct rfs_planner *planner, uint32_t local,
                                const struct rfs_target *target, rfs_bad_copy_fn *each, void *ctx);
/*
 * Finds where all chunks of a plan are in their files, takes those files into its attributes, and
 * compares copies as chunked.c says. 0 or -errno with *err filled.
 */
int rfs_plan_chunked_attributes(struct rfs_planning *planning, struct rfs_rank_plan *plan);
