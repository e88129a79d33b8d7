/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of one list or of several beside each other, each from its first byte to its last,
 * in pieces by several threads: pieces are worked on at once, and their results are folded into
 * their item in order (turns.h). So the result does not depend on the number of threads, and a hash
 * of an item can be folded that others help to read.
 *
 * Memory: 8 bytes an item, and each thread's worker.
 */
#pragma once

#include "base/progress.h"
#include "view/tensors.h"

#define RFS_SWEEP_PIECE ((uint64_t)4 << 20) /* bytes; a multiple of the assembler's pieces */
#define RFS_SWEEP_SIDES 3

/* Units BEGIN to BEGIN + N - 1 of an item. */
struct rfs_sweep_piece {
    size_t item;
    uint64_t begin, n; /* N is 0 for the one piece of an item without any */
    bool last;
};

/* The buffers and slices of a thread. */
struct rfs_sweep_worker {
    /* Buffers of RFS_SWEEP_PIECE: the bytes of each side, and spare ones. */
    unsigned char *bytes[RFS_SWEEP_SIDES];
    struct rfs_slice *slice; /* [RFS_SWEEP_SIDES] slices of item OF, on the sides that are read */
    size_t of;               /* SIZE_MAX: none */
    void *own;               /* OWN_BYTES, zero before each piece */
};

struct rfs_sweep {
    void *ctx;
    size_t n;       /* items */
    unsigned sides; /* lists that are read beside each other, and spare buffers */
    size_t own_bytes;
    /* Returns the tensor of an item on a side; none: its buffer is spare. */
    struct rfs_tensor (*tensor)(void *ctx, size_t item, unsigned side);
    uint64_t (*units)(void *ctx, size_t item);               /* how long an item is */
    uint64_t (*unit)(void *ctx, size_t item, unsigned side); /* bytes of a unit; NULL: 1 */
    /*
     * Work on any pieces at once, and fold those of an item in order. Return 0, or -errno with *err
     * filled, which ends it all.
     */
    int (*work)(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                struct rfs_error *err);
    int (*fold)(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                struct rfs_error *err);
    struct rfs_progress *progress; /* the sweep begins and ends it */
    const char *phase;
};

/*
 * Sweeps over all items. Returns 0, or -errno with *err filled: the error of a piece that failed,
 * or -ENOMEM.
 */
int rfs_sweep_run(const struct rfs_sweep *sweep, unsigned threads, struct rfs_error *err);
