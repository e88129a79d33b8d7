/* SPDX-License-Identifier: Apache-2.0 */
/* Scoped clean-up: a variable frees itself on every way out of its block unless it is stolen. */
#pragma once

#include "base/std.h"

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
