/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wait.h"

#include <sys/resource.h>
#include <time.h>

static uint64_t now_of(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t rfs_wait_now(void)
{
    return now_of(CLOCK_MONOTONIC);
}

static long switches(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
}

/* Returns what the thread has computed, ns. getrusage knows it as of the last tick only. */
static uint64_t computed(void)
{
    return now_of(CLOCK_THREAD_CPUTIME_ID);
}

void rfs_wait_begin(struct rfs_wait *wait)
{
    if (wait->calm < RFS_WAIT_CLOSELY) {
        wait->switches = switches();
        wait->computed = computed();
    }
    wait->begin = rfs_wait_now();
}

uint64_t rfs_wait_end(struct rfs_wait *wait, uint64_t least)
{
    const uint64_t took = rfs_wait_now() - wait->begin;
    const bool asked = wait->calm < RFS_WAIT_CLOSELY;

    if (took <= least) {
        wait->calm += asked;
        return 0;
    }
    wait->calm = 0;
    return asked && rfs_wait_is_one(took, computed() - wait->computed, switches() - wait->switches)
               ? took
               : 0;
}
