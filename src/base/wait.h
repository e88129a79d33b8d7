/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time that a thread waited for something outside of it, rather than for a processor: time in
 * which it gave the processor up by itself (RUSAGE_THREAD's voluntary context switches), and did
 * not compute for most of it. Memory that is filled for the first time makes threads wait for each
 * other, too, but shortly. A busy machine makes everything slow, but not this.
 *
 * This takes two system calls at either end, which are made at first, and later only when the times
 * before were long: the fast path costs two clock_gettime calls.
 */
#pragma once

#include "base/std.h"

/* The shortest time that counts as waiting; ns. */
#define RFS_WAIT_LEAST UINT64_C(200000)
/* The number of times that are looked at closely, at first and after a long one. */
#define RFS_WAIT_CLOSELY 16u

/* The state of one thread; begins as {0}. */
struct rfs_wait {
    uint64_t begin;    /* ns */
    uint64_t computed; /* by the thread until then, ns */
    long switches;
    unsigned calm; /* times in a row that were not long; RFS_WAIT_CLOSELY: no closer look */
};

/*
 * Says whether TOOK ns were a wait: the thread gave the processor up, SWITCHES times, and COMPUTED,
 * the ns in which it had one, are less than three quarters of them.
 */
static inline bool rfs_wait_is_one(uint64_t took, uint64_t computed, long switches)
{
    return switches > 0 && computed < took - took / 4;
}

void rfs_wait_begin(struct rfs_wait *wait);
/*
 * Returns the ns since then if it took longer than LEAST and the thread waited in it; else 0, also
 * if the system was not asked.
 */
uint64_t rfs_wait_end(struct rfs_wait *wait, uint64_t least);

/* Returns the ns of the monotonic clock. */
uint64_t rfs_wait_now(void);
