/* SPDX-License-Identifier: Apache-2.0 */
#include "base/limits.h"

#include <sys/resource.h>

void rfs_limits_raise_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* the earlier limit does, too */
}

unsigned rfs_limits_files(unsigned most)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return most;
    const rlim_t all = limit.rlim_cur;
    /* If there are very few, take a quarter: readers take turns with those. */
    const rlim_t ours = all >= 2 * RFS_LIMITS_FILES_KEPT ? all - RFS_LIMITS_FILES_KEPT : all / 4;
    return ours >= most ? most : ours > 0 ? (unsigned)ours : 1;
}

uint64_t rfs_limits_addresses(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX
                                                                                : limit.rlim_cur;
}
