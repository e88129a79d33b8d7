/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decrypted blocks: at most BUDGET bytes of them, those that are being made and those that are
 * being wiped among them. A block is decrypted once for all that want it: the second waits. The
 * least recently used goes for the next; memory of the right size is used again, other memory is
 * wiped and given back.
 *
 * A block that one thread has made is not taken away for another's within RFS_BLOCK_TURN, so that
 * threads which together want more than there is room for work one after the other, rather than
 * decrypt a block for every few bytes. A thread may replace its own, unless another thread has been
 * waiting for RFS_BLOCK_PATIENCE.
 *
 * Threads: all functions but new and free. One lock; it is not held across I/O, decryption, wiping
 * or copying. A thread that holds a block must not ask for another: all that are held are given
 * back soon, whatever else is waited for.
 */
#pragma once

#include "base/secret.h"

#define RFS_BLOCK_TURN 100     /* milliseconds */
#define RFS_BLOCK_PATIENCE 400 /* milliseconds */
/* More are not held, however small they are: the system does not map any number of them. */
#define RFS_BLOCKS_MOST 4096

struct rfs_blocks;

/* SECRET is borrowed. NULL when out of memory. */
struct rfs_blocks *rfs_blocks_new(uint64_t budget, struct rfs_secret *secret);
/* Nothing may be held. NULL is fine. */
void rfs_blocks_free(struct rfs_blocks *blocks);

/* A block that somebody holds. */
struct rfs_block_held {
    const unsigned char *data;
    void *own; /* the store's */
};

/*
 * Makes the plain text in DATA, which is undefined before. 0, or -errno, which every thread gets
 * that waits for it; then nothing is kept, and it is wiped.
 */
typedef int rfs_block_make(void *ctx, unsigned char *data);

/*
 * Block NUMBER of file FILE, of BYTES > 0: the same each time. 0 with *out to be given back by
 * rfs_blocks_put, or -errno: make's, -ENOMEM, or -EFBIG for a block larger than the budget.
 */
int rfs_blocks_get(struct rfs_blocks *blocks, uint32_t file, uint32_t number, size_t bytes,
                   rfs_block_make *make, void *ctx, struct rfs_block_held *out);
void rfs_blocks_put(struct rfs_blocks *blocks, const struct rfs_block_held *held);

/* Wipes and gives back all that nobody holds. */
void rfs_blocks_drop(struct rfs_blocks *blocks);

struct rfs_blocks_counters {
    uint64_t budget, bytes, made, evictions;
};
void rfs_blocks_count(struct rfs_blocks *blocks, struct rfs_blocks_counters *out);
