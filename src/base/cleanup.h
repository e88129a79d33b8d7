/* SPDX-License-Identifier: Apache-2.0 */
/* Scoped clean-up: a variable frees itself on every way out of its block unless it is stolen. */
#pragma once

#include "base/std.h"

#include <pthread.h>
#include <unistd.h>

static inline void rfs_cleanup_free(void *p)
{
    free(*(void **)p);
}

static inline void rfs_cleanup_close(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

#define RFS_FREE __attribute__((cleanup(rfs_cleanup_free)))
#define RFS_CLOSE __attribute__((cleanup(rfs_cleanup_close)))
#define RFS_CLEANUP(fn) __attribute__((cleanup(fn)))
/* Defines NAME for RFS_CLEANUP: the clean-up of a pointer of TYPE by FREE, which ignores NULL. */
#define RFS_CLEANUP_OF(name, type, free)                                                           \
    static void name(type *p)                                                                      \
    {                                                                                              \
        free(*p);                                                                                  \
    }

static inline pthread_mutex_t *rfs_cleanup_lock(pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    return lock;
}

static inline void rfs_cleanup_unlock(pthread_mutex_t *const *lock)
{
    pthread_mutex_unlock(*lock);
}

/* Holds a lock until the end of the block. */
#define RFS_LOCKED(lock)                                                                           \
    __attribute__((cleanup(rfs_cleanup_unlock), unused)) pthread_mutex_t *const RFS_LOCKED_NAME(   \
        __LINE__) = rfs_cleanup_lock(lock)
#define RFS_LOCKED_NAME(line) RFS_LOCKED_PASTE(line)
#define RFS_LOCKED_PASTE(line) locked_##line

static inline void *rfs_steal_ptr(void *p)
{
    void **slot = (void **)p;
    void *value = *slot;
    *slot = NULL;
    return value;
}

/* The pointer's value; the variable becomes NULL, so that its clean-up does nothing. */
#define RFS_STEAL(p) ((__typeof__(p))rfs_steal_ptr(&(p)))

static inline int rfs_steal_fd(int *fd)
{
    int value = *fd;
    *fd = -1;
    return value;
}
