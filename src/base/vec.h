/* SPDX-License-Identifier: Apache-2.0 */
/* A growing array: struct { T *data; size_t n, cap; }. Amortised O(1) append; sizes are checked. */
#pragma once

#include "base/std.h"

#define RFS_VEC(T)                                                                                 \
    struct {                                                                                       \
        T *data;                                                                                   \
        size_t n, cap;                                                                             \
    }

/*
 * Room for MORE elements of SIZE bytes behind N. Returns false when out of memory; the data stays
 * valid.
 */
bool rfs_vec_reserve(void **data, size_t *cap, size_t n, size_t more, size_t size);

/* Room for one more. */
static inline bool rfs_vec_grow(void **data, size_t *cap, size_t n, size_t size)
{
    return rfs_vec_reserve(data, cap, n, 1, size);
}

/* Room for MORE elements behind those that are there; evaluates to false when out of memory. */
#define RFS_RESERVE(v, more)                                                                       \
    rfs_vec_reserve((void **)&(v)->data, &(v)->cap, (v)->n, (more), sizeof *(v)->data)

/* Appends; evaluates to false when out of memory. */
#define RFS_PUSH(v, ...)                                                                           \
    (((v)->n < (v)->cap || RFS_RESERVE(v, 1)) ? ((v)->data[(v)->n++] = (__VA_ARGS__), true) : false)
