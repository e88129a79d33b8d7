/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bell wakes the guard (guard.h), for the threads that it looks after. It lives as long as the
 * process. From any thread.
 */
#pragma once

#include "base/std.h"

#include <stdatomic.h>
#include <sys/eventfd.h>
#include <time.h>

struct rfs_bell {
    int fd;             /* an event descriptor */
    atomic_bool asleep; /* the guard has nothing to watch */
    atomic_bool ending; /* the mount is to end */
};

/* Milliseconds of a clock that never goes back. */
static inline int64_t rfs_bell_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * Makes the guard look: at requests with callers that got a signal, or because no thread waits for
 * requests any more.
 */
static inline void rfs_bell_ring(struct rfs_bell *bell)
{
    eventfd_write(bell->fd, 1);
}
/* The same, but only if it sleeps: no system call else. */
static inline void rfs_bell_rouse(struct rfs_bell *bell)
{
    if (atomic_exchange(&bell->asleep, false))
        rfs_bell_ring(bell);
}
/* The mount ends; any number of times. */
static inline void rfs_bell_end(struct rfs_bell *bell)
{
    if (!atomic_exchange(&bell->ending, true))
        rfs_bell_ring(bell);
}
