/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings a block's loops into the form used for copying: loops of one step dropped, loops that
 * continue each other joined, contiguous ones taken into the run.
 *
 * Runs are numbered in the order of the loops, which is ascending in the source and in the
 * destination, so that any range of either is a range of numbers.
 */
#pragma once

#include "plan/slice.h"

struct rfs_shape {
    uint64_t run; /* bytes */
    bool empty;   /* the block moves nothing; the other members mean nothing then */
    uint32_t n;
    struct rfs_loop loop[RFS_MAX_DIMS];
    uint64_t inner[RFS_MAX_DIMS];    /* runs in one step of each loop */
    uint64_t src_span[RFS_MAX_DIMS]; /* source bytes from the first to the last of one step */
};

void rfs_shape_init(struct rfs_shape *shape, const struct rfs_block *block);

/* Return where run K begins, relative to the block's first, in the source and destination. */
uint64_t rfs_shape_src(const struct rfs_shape *shape, uint64_t k);
uint64_t rfs_shape_dst(const struct rfs_shape *shape, uint64_t k);
/* Returns the last run that begins at or before the offset in the source or destination. */
enum rfs_shape_side { RFS_SHAPE_SRC, RFS_SHAPE_DST };
uint64_t rfs_shape_at(const struct rfs_shape *shape, enum rfs_shape_side side, uint64_t offset);
