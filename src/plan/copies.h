/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All copies of a target's data that the source ranks hold, not only the one that is shown:
 * replicas, and the files of other stages. For comparing them. Threads and lifetimes are the
 * planner's. Ranks are indexed as they are needed; one that cannot be counts as lacking the
 * parameter.
 *
 * Copies are numbered: 0 is made of the pieces that rfs_planner_slice takes, each further one of
 * the next rank that holds the same, part by part, so that all copies together read every part of
 * every rank once. Of a checkpoint that describes itself, the next file counts instead.
 */
#pragma once

#include "plan/planner.h"

/* Of a copy. */
struct rfs_copy {
    size_t others; /* blocks that are not those of copy 0; it is the same if there are none */
    /* a source rank that has another type there, so that its part is left out, or RFS_NO_RANK */
    uint32_t odd;
};

/*
 * The same target as source STAGE has it, for the destination rank RANK: 1 with *out filled, whose
 * type may differ, 0 when that stage has none, or -errno with *err filled. O(ranks of the stage)
 * when most lack it.
 */
int rfs_planner_twin(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                     uint32_t stage, struct rfs_target *out, struct rfs_error *err);

/*
 * How many copies there may be: the source ranks that hold each part, or all of a stage if no
 * strategy knows it; of a checkpoint that describes itself, the files that hold one part at most.
 */
uint32_t rfs_planner_copies(struct rfs_planner *planner, const struct rfs_target *target);

/* As rfs_planner_slice, of copy number COPY. Where that lacks a part, the part is as in copy 0. */
int rfs_planner_copy(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                     uint32_t copy, struct rfs_slice *slice, struct rfs_copy *out);

/* A further copy of a chunk that cannot be compared. */
struct rfs_bad_copy {
    const char *file;            /* path; the catalogue's */
    const struct rfs_error *why; /* why it cannot be read; NULL: it has something else there */
    const struct rfs_type *type; /* of that; NULL: nothing */
    uint64_t at;                 /* where that begins in the file */
    const struct rfs_type *want; /* the chunk's */
    uint64_t begin;              /* where the chunk begins in the tensor, in bytes row by row */
};
typedef void rfs_bad_copy_fn(void *ctx, const struct rfs_bad_copy *bad);
/*
 * Calls EACH for all further copies of a target of destination rank RANK that rfs_planner_copy
 * leaves out: of a checkpoint that describes itself, else none. 0 or -errno. O(copies).
 */
int rfs_planner_bad_copies(struct rfs_planner *planner, uint32_t rank,
                           const struct rfs_target *target, rfs_bad_copy_fn *each, void *ctx);
