/* SPDX-License-Identifier: Apache-2.0 */
/* Copy runs as ranges of bytes of a file. */
#pragma once

#include "base/vec.h"
#include "plan/slice.h"

/*
 * RUN bytes at OFFSET + Σ i_k * loop[k].stride for all i_k below loop[k].count, outermost loop
 * first. Strides are 0 where the same bytes are taken over and over, as of a tensor that torch
 * expanded.
 */
struct rfs_file_range {
    uint64_t offset; /* in the file */
    uint64_t run;
    uint32_t n_loops;
    struct {
        uint64_t count, stride;
    } loop[RFS_MAX_DIMS];
};

struct rfs_file_ranges {
    struct rfs_file_range *data;
    size_t n, cap;
};

/*
 * Appends the ranges of a block: one, but for a tensor that lies in several extents (a .ckpt has
 * one for each 512 MiB): then up to one a loop for each extent, and one more for each boundary.
 * Their runs have the order of the block's elements. False when out of memory.
 */
bool rfs_ranges_add(const struct rfs_block *block, struct rfs_file_ranges *out);

/* Largest stride first, which is the order of the file, and runs without gaps between are one. */
void rfs_range_sort(struct rfs_file_range *range);

/* Bytes of the file that a block takes, each counted once. */
uint64_t rfs_block_source_bytes(const struct rfs_block *block);
