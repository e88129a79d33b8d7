/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading an account's objects: versions of them, and their bytes. The calls are those
 * of base/store.h.
 *
 * An object's identity is its ETag, or else the time of its last change, with its size. All bytes
 * of a version that is held are asked for by If-Match (or If-Unmodified-Since), and each answer is
 * compared; no request is needed to know that they belong together. A change is noticed with the
 * next request for the object, or when names are asked for anew.
 *
 * Large reads are cut into ranges that are asked for at once. Small ones, as of headers, take
 * blocks that grow while they follow each other; blocks of all accounts take at most 16 MiB.
 *
 * Threads: all functions. The locks are leaf locks, not held across any request; that of the blocks
 * is held over copies of small reads.
 */
#pragma once

#include "base/store.h"

extern const struct rfs_store_objects rfs_object_calls;

/* ---- where headers will be read ---- */

#define RFS_OBJECT_JUMPS_MOST 65
#define RFS_OBJECT_JUMPS_AHEAD 63

/*
 * The last small reads. A .ckpt has a header before each tensor, so that a walk jumps from one to
 * the next, and layers of a model that are alike make jumps that repeat. Jumps that did are
 * expected to go on so: twice as many as have repeated, by the period that repeated longest. All 0
 * to begin with; the owner locks.
 */
struct rfs_object_jumps {
    uint64_t at[RFS_OBJECT_JUMPS_MOST]; /* offsets, ascending */
    size_t n;
};

/* Notes a small read at OFFSET. Other files than object.c call it for tests alone. */
void rfs_object_note_jump(struct rfs_object_jumps *jumps, uint64_t offset);
/*
 * Writes where the next reads are expected, ascending; returns how many. Other files than object.c
 * call it for tests alone.
 */
size_t rfs_object_guess_jumps(const struct rfs_object_jumps *jumps,
                              uint64_t out[RFS_OBJECT_JUMPS_AHEAD]);
