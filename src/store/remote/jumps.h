/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where headers of an object will be read: a .ckpt has one before each tensor, so that a walk jumps
 * from one to the next, and layers of a model that are alike make jumps that repeat. Jumps that did
 * are expected to go on so: twice as many as have repeated.
 *
 * Its owner locks; no I/O.
 */
#pragma once

#include "base/std.h"

#define RFS_JUMPS_KEPT 65
#define RFS_JUMPS_AHEAD 63

/* All 0 to begin with. */
struct rfs_jumps {
    uint64_t at[RFS_JUMPS_KEPT]; /* of the last reads, ascending */
    size_t n;
};

/* A small read at OFFSET. */
void rfs_jumps_note(struct rfs_jumps *jumps, uint64_t offset);
/* Where the next ones are expected, ascending; how many. */
size_t rfs_jumps_guess(const struct rfs_jumps *jumps, uint64_t out[RFS_JUMPS_AHEAD]);
