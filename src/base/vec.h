/* SPDX-License-Identifier: Apache-2.0 */
/* A growing array: struct { T *data; size_t n, cap; }. Amortised O(1) append; sizes are checked. */
#ifndef RFS_BASE_VEC_H
#define RFS_BASE_VEC_H

#include <stdbool.h>
#include <stddef.h>

#define RFS_VEC(T)                                                                                 \
    struct {                                                                                       \
        T *data;                                                                                   \
        size_t n, cap;                                                                             \
    }

/* Room for one more element of SIZE bytes. Returns false when out of memory; the data stays valid. */
bool rfs_vec_grow(void **data, size_t *cap, size_t n, size_t size);

/* Appends; evaluates to false when out of memory. */
#define RFS_PUSH(v, ...)                                                                           \
    (((v)->n < (v)->cap ||                                                                         \
      rfs_vec_grow((void **)&(v)->data, &(v)->cap, (v)->n, sizeof *(v)->data))                     \
         ? ((v)->data[(v)->n++] = (__VA_ARGS__), true)                                             \
         : false)

#endif
