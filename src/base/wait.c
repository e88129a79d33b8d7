/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wait.h"

#include <sys/resource.h>
#include <time.h>

uint64_t rfs_wait_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t ns_of(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_usec * 1000;
}

/* Gives how often the thread gave its processor up, and how long it has computed. */
static long switches(uint64_t *computed)
{
    struct rusage usage;

    *computed = 0;
    if (getrusage(RUSAGE_THREAD, &usage) != 0)
        return 0;
    *computed = ns_of(&usage.ru_utime) + ns_of(&usage.ru_stime);
    return usage.ru_nvcsw;
}

void rfs_wait_begin(struct rfs_wait *wait)
{
    if (wait->calm < RFS_WAIT_CLOSELY)
        wait->switches = switches(&wait->computed);
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
    if (!asked)
        return 0;
    uint64_t computed;
    const long more = switches(&computed) - wait->switches;
    return rfs_wait_is_one(took, computed - wait->computed, more) ? took : 0;
}
