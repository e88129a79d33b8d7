/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a thread waited for something outside of it, rather than computed or was made to wait its turn for a
 * processor: time in which it gave the processor up by itself (RUSAGE_THREAD's voluntary context switches). A busy
 * machine makes everything slow, but not this.
 *
 * Asking the kernel costs a system call at either end, so it is asked at first, and later only when the times before were
 * long: who is fast pays for two looks at the clock.
 */
#ifndef RFS_BASE_WAIT_H
#define RFS_BASE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* What takes no longer is not waiting; ns. */
#define RFS_WAIT_LEAST UINT64_C(200000)
/* So many are looked at closely, at first and after a long one. */
#define RFS_WAIT_CLOSELY 16u

/* One thread's; {0} to begin with. */
struct rfs_wait {
    uint64_t begin; /* ns */
    long switches;
    unsigned
        calm; /* times in a row that were not long, up to RFS_WAIT_CLOSELY: from then on the kernel is not asked */
};

void rfs_wait_begin(struct rfs_wait *wait);
/* ns since then if it took longer than LEAST and the thread waited in it; else 0, also if the kernel was not asked. */
uint64_t rfs_wait_end(struct rfs_wait *wait, uint64_t least);

/* ns of the monotonic clock. */
uint64_t rfs_wait_now(void);

#endif
