/* SPDX-License-Identifier: Apache-2.0 */
#include "base/limits.h"

#include "base/thread.h"

#include <sys/resource.h>

void rfs_limits_raise_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* the earlier limit does, too */
}

/* Threads that libraries start have what the limit was when the program began. */
static void raise_default(void)
{
#ifdef __GLIBC__
    pthread_attr_t attributes;
    size_t bytes;

    if (pthread_getattr_default_np(&attributes) != 0)
        return;
    if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < RFS_THREAD_STACK &&
        pthread_attr_setstacksize(&attributes, RFS_THREAD_STACK) == 0)
        (void)pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
#endif
}

int rfs_limits_raise_stack(struct rfs_error *err)
{
    struct rlimit limit;

    raise_default();
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= RFS_THREAD_STACK)
        return 0;
    const rlim_t had = limit.rlim_cur;
    limit.rlim_cur = RFS_THREAD_STACK;
    if (limit.rlim_max >= RFS_THREAD_STACK && setrlimit(RLIMIT_STACK, &limit) == 0)
        return 0;
    return rfs_fail(err, -ENOMEM, RFS_NOWHERE, "a higher limit (ulimit -s)",
                    "the stack may have %" PRIu64 " KiB, and %zu are needed", (uint64_t)had >> 10,
                    RFS_THREAD_STACK >> 10);
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
