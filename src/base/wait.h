/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a thread waited for something outside of it, rather than for a processor: time in which
 * it gave the processor up by itself (RUSAGE_THREAD's voluntary context switches). A busy machine
 * makes everything slow, but not this.
 *
 * This takes a getrusage call at either end, which is made at first, and later only when the times
 * before were long: the fast path costs two clock_gettime calls.
 */
#pragma once

#include "base/std.h"

/* Shorter times are not waiting; ns. */
#define RFS_WAIT_LEAST UINT64_C(200000)
/* So many are looked at closely, at first and after a long one. */
#define RFS_WAIT_CLOSELY 16u

/* One thread's; {0} to begin with. */
struct rfs_wait {
    uint64_t begin; /* ns */
    long switches;
    unsigned
        /*
         * times in a row that were not long, up to RFS_WAIT_CLOSELY: from then on getrusage is not
         * called
         */
        calm;
};

void rfs_wait_begin(struct rfs_wait *wait);
/*
 * ns since then if it took longer than LEAST and the thread waited in it; else 0, also if getrusage
 * was not called.
 */
uint64_t rfs_wait_end(struct rfs_wait *wait, uint64_t least);

/* ns of the monotonic clock. */
uint64_t rfs_wait_now(void);
