/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long items, each from its first byte to its last, in pieces by several threads: pieces are worked on at once, and
 * what they gave is folded into their item in order. So what comes out does not depend on the number of threads, and
 * a hash of an item can be folded that others help to read.
 *
 * Threads take pieces in order, so whoever waits for its turn waits for a thread that works.
 * Memory: 8 bytes an item, and what a worker needs, for each thread.
 */
#ifndef RFS_TOOL_COMMON_SWEEP_H
#define RFS_TOOL_COMMON_SWEEP_H

#include "base/error.h"
#include "tool/common/progress.h"

#include <stddef.h>
#include <stdint.h>

struct rfs_sweep_piece {
    size_t item;
    uint64_t begin, n; /* units; n is 0 for the one piece of an item without any */
    bool last;
};

struct rfs_sweep {
    void *ctx;
    size_t n;                                                  /* items */
    uint64_t (*units)(void *ctx, size_t item);                 /* how long it is */
    uint64_t (*step)(void *ctx, size_t item);                  /* units of a piece; at least 1 */
    uint64_t (*bytes)(void *ctx, size_t item, uint64_t units); /* for the progress */
    void *(*worker)(void *ctx); /* what a thread keeps; NULL when out of memory */
    void (*worker_free)(void *ctx, void *worker);
    /* 0, or -errno with *err filled, which ends it all. Of any pieces at once; of those of an item in order. */
    int (*work)(void *ctx, void *worker, const struct rfs_sweep_piece *piece,
                struct rfs_error *err);
    int (*fold)(void *ctx, void *worker, const struct rfs_sweep_piece *piece,
                struct rfs_error *err);
    struct rfs_progress *progress;
};

/* 0, or -errno with *err filled: that of a piece that failed, or -ENOMEM. */
int rfs_sweep_run(const struct rfs_sweep *sweep, unsigned threads, struct rfs_error *err);

#endif
