/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of one destination slice come from: blocks, one for each source cell that the
 * slice's box touches. Blocks cover every destination byte exactly once.
 *
 * A block is a strided copy: for loop counters i0, i1, … it moves RUN bytes from src + Σ i_k *
 * loop[k].src_stride in the source content to dst + Σ i_k * loop[k].dst_stride in the slice. Axes
 * that are whole on both sides are folded into the run, so n_loops is 0 when the block is
 * contiguous on both sides. Strides decrease from loop to loop, but those of the source of a
 * strided block.
 *
 * Cost: 48 bytes + 24 a loop for each block, made on demand and never kept beyond the read.
 */
#pragma once

#include "formats/index.h"

struct rfs_loop {
    uint64_t count;
    uint64_t dst_stride; /* bytes; at least the extent of the inner loops */
    uint64_t src_stride;
};

struct rfs_block {
    uint32_t file;              /* id in the catalogue's files */
    struct rfs_content content; /* its extents live as long as the catalogue, or the storages */
    uint64_t dst;               /* of the first run, in the slice */
    uint64_t src;               /* of the first run, in the content */
    uint64_t run;               /* bytes */
    uint64_t dst_end;           /* one past the last byte that the block writes */
    uint32_t n_loops;
    /* source strides are any, as of a transposed tensor: they may grow inwards, or be 0 */
    bool strided;
    struct rfs_loop loop[RFS_MAX_DIMS]; /* outermost first */
};

struct rfs_slice {
    uint64_t bytes;
    uint64_t id[2]; /* equal for equal parameter, box and sources: XXH3-128 of those */
    size_t n;
    size_t cap;
    struct rfs_block *blocks; /* ascending by dst */
};

/*
 * Sets the box that a block moves: LEN elements along each of NDIM axes, with strides in bytes; dst
 * and src, the first element's places, are set already.
 */
void rfs_block_box(struct rfs_block *block, uint32_t ndim, const uint64_t *len, uint64_t item,
                   const uint64_t *dst_stride, const uint64_t *src_stride);
/* Sets a block to move a whole value; its strides are row-major if STRIDES is NULL. */
void rfs_block_whole(struct rfs_block *block, const struct rfs_type *type, const uint64_t *strides);
/* Compares blocks by where they begin in the slice, for qsort. */
int rfs_block_by_destination(const void *a, const void *b);
/* Sets the id of a slice whose bytes and blocks are set: which source bytes go where. */
void rfs_slice_name(struct rfs_slice *slice);
void rfs_slice_free(struct rfs_slice *slice);
/* A block more, to be set whole; the caller keeps the order. NULL when out of memory. */
struct rfs_block *rfs_slice_add(struct rfs_slice *slice);
/*
 * The block that byte AT of the slice comes from, which byte of the entry's content it is in *from,
 * and how many bytes go on from there in one run in *left; NULL beyond the end. O(blocks).
 */
const struct rfs_block *rfs_slice_find(const struct rfs_slice *slice, uint64_t at, uint64_t *from,
                                       uint64_t *left);
