/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room: where a whole tensor is stored, box by box, for planners of an unsharded
 * destination. A box lies in one file, with a stride for each axis.
 */
#pragma once

#include "plan/internal.h"

struct rfs_stored {
    uint64_t at[RFS_MAX_DIMS]; /* in the whole tensor */
    uint64_t size[RFS_MAX_DIMS];
    uint64_t stride[RFS_MAX_DIMS]; /* in bytes */
    uint64_t begin;                /* of its first element, in the content */
    uint32_t file;
    struct rfs_content content;
    uint32_t rank; /* the source rank that gives it; of a checkpoint that describes itself, the
                      number of its file */
    uint64_t slice_at[RFS_MAX_DIMS]; /* where the box begins in the slice of that rank or file */
};

/* 0 or -errno, which ends the walk. */
typedef int rfs_stored_fn(void *ctx, const struct rfs_stored *stored);

/*
 * Calls EACH for the boxes that the box from LO to HI (exclusive, not empty) of a target of rank 0
 * touches; they may reach beyond it. Within a use of the catalogue. 0 or -errno.
 */
int rfs_plan_stored(struct rfs_planner *planner, const struct rfs_target *target,
                    const uint64_t *lo, const uint64_t *hi, rfs_stored_fn *each, void *ctx);
