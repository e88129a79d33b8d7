/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of one destination slice come from: blocks, one for each source cell that the
 * slice's box touches. Blocks cover every destination byte exactly once.
 *
 * A block is a strided copy: for loop counters i0, i1, … it moves RUN bytes from src + Σ i_k *
 * loop[k].src_stride in the source content to dst + Σ i_k * loop[k].dst_stride in the slice. Axes
 * that are whole on both sides are folded into the run, so n_loops is 0 when the block is
 * contiguous on both sides. Strides decrease from loop to loop, except the source's in a strided
 * block.
 *
 * Cost: 48 bytes + 24 a loop for each block, made on demand and freed with the read.
 */
#pragma once

#include "formats/index.h"
#include "formats/storages.h"

struct rfs_loop {
    uint64_t count;
    uint64_t dst_stride; /* bytes; at least the extent of the inner loops */
    uint64_t src_stride;
};

struct rfs_block {
    uint32_t file;              /* id in the catalogue's files */
    struct rfs_content content; /* its extents live as long as the catalogue, or the storages */
    uint64_t dst;               /* place of the first run in the slice */
    uint64_t src;               /* place of the first run in the content */
    uint64_t run;               /* bytes */
    uint64_t dst_end;           /* one past the last byte that the block writes */
    uint32_t n_loops;
    /* source strides may grow inwards, or be 0, such as those of a transposed tensor */
    bool strided;
    struct rfs_loop loop[RFS_MAX_DIMS]; /* outermost first */
};

struct rfs_slice {
    uint64_t bytes;
    uint64_t id[2]; /* XXH3-128 of which source bytes go where */
    size_t n;
    size_t cap;
    struct rfs_block *blocks; /* ascending by dst */
};

/*
 * Makes a block move a box: LEN elements along each of NDIM axes, with strides in bytes. dst and
 * src, the first element's places, are set already.
 */
void rfs_slice_block_box(struct rfs_block *block, uint32_t ndim, const uint64_t *len, uint64_t item,
                         const uint64_t *dst_stride, const uint64_t *src_stride);
/* Makes a block move a whole value; the source is row-major if STRIDES is NULL. */
void rfs_slice_block_whole(struct rfs_block *block, const struct rfs_type *type,
                           const uint64_t *strides);
/* Makes a block move the box from LO to HI of a value, which is not empty. */
void rfs_slice_block_part(struct rfs_block *block, const struct rfs_type *type,
                          const uint64_t *strides, const uint64_t *lo, const uint64_t *hi);
/*
 * Sorts the blocks by where they begin in the slice, and joins those whose runs follow each other
 * there and in the file.
 */
void rfs_slice_sort(struct rfs_slice *slice);
/* Sets the id of a slice whose bytes and blocks are set. */
void rfs_slice_name(struct rfs_slice *slice);
void rfs_slice_free(struct rfs_slice *slice);
/*
 * Adds a block, which the caller sets whole; the order is the caller's, too. NULL when out of
 * memory.
 */
struct rfs_block *rfs_slice_add(struct rfs_slice *slice);
/*
 * Finds the block that byte AT of the slice comes from, its place in the content (*from), and how
 * many bytes go on from there in one run (*left). NULL beyond the end. O(blocks).
 */
const struct rfs_block *rfs_slice_find(const struct rfs_slice *slice, uint64_t at, uint64_t *from,
                                       uint64_t *left);
/*
 * Makes the slice of an item of storages. slice is zero-initialised or one to use again; the caller
 * frees it. 0 or -ENOMEM.
 */
int rfs_slice_storage(const struct rfs_storages *storages, uint32_t item, struct rfs_slice *slice);
