/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of blocks of plain bytes, as a cache within a budget.
 *
 * Threads: all functions but new and free.
 */
#pragma once

#include "base/std.h"

/*
 * Blocks of plain bytes that are made of blocks of files, by decryption (encrypted.h) or
 * decompression: at most BUDGET bytes of them, those that are being made and those that
 * are being wiped among them. A block is made once for all that want it: the second waits. The
 * least recently used goes for the next; memory of the right size is used again, other memory is
 * wiped and given back.
 *
 * A block that one thread has made is not taken away for another's within RFS_BLOCK_TURN, so that
 * threads which together want more than there is room for work one after the other, rather than
 * make a block for every few bytes. A thread may replace its own, unless another thread has been
 * waiting for RFS_BLOCK_PATIENCE.
 *
 * One lock; it is not held across I/O, making, wiping or copying. A thread that holds a block
 * must not ask for another: all that are held are given back soon, whatever else is waited for.
 */
struct rfs_blocks;

#define RFS_BLOCK_TURN 100     /* milliseconds */
#define RFS_BLOCK_PATIENCE 400 /* milliseconds */
/* The most blocks, however small they are: the system does not map any number of them. */
#define RFS_BLOCKS_MOST 4096

/* Makes an empty set of blocks. NULL when out of memory. */
struct rfs_blocks *rfs_blocks_new(uint64_t budget);
/* Frees all blocks; nothing may be held. NULL is fine. */
void rfs_blocks_free(struct rfs_blocks *blocks);
/* Sets another budget, at any time, and gives back what nobody holds if there is too much. */
void rfs_blocks_limit(struct rfs_blocks *blocks, uint64_t budget);

/* A block that somebody holds. */
struct rfs_block_held {
    const unsigned char *data;
    size_t bytes; /* that its maker left in it */
    void *own;    /* the set's */
};

/*
 * Makes the plain text in DATA, *BYTES that are undefined before. It may lower *bytes: the memory
 * behind them is given back. 0, or -errno, which every thread gets that waits for it; DATA is then
 * wiped.
 */
typedef int rfs_block_make(void *ctx, unsigned char *data, size_t *bytes);

/*
 * Gets block NUMBER of file FILE, for which MAKE gets BYTES > 0. 0 with *out to be given back by
 * rfs_blocks_put, or -errno: make's, -ENOMEM, or -EFBIG if BYTES are more than the budget.
 */
int rfs_blocks_get(struct rfs_blocks *blocks, uint32_t file, uint32_t number, size_t bytes,
                   rfs_block_make *make, void *ctx, struct rfs_block_held *out);
void rfs_blocks_put(struct rfs_blocks *blocks, const struct rfs_block_held *held);

/* Returns the bytes of the largest block that there is room for: the whole pages of the budget. */
uint64_t rfs_blocks_largest(struct rfs_blocks *blocks);

/* Wipes and gives back all blocks that nobody holds. */
void rfs_blocks_drop(struct rfs_blocks *blocks);

struct rfs_blocks_counters {
    uint64_t budget, bytes, made, evictions;
};
void rfs_blocks_count(struct rfs_blocks *blocks, struct rfs_blocks_counters *out);
