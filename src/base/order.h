/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing, sorting and bisection. */
#pragma once

#include "base/std.h"

/* Evaluates to -1, 0 or 1, as A is below B, equal to it or above it. Evaluates both twice. */
#define RFS_ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/*
 * Defines NAME, a static function for RFS_SORT and bsearch: the order of two elements of TYPE, to
 * which X and Y point.
 *
 *     RFS_COMPARE(by_place, struct range, x, y,
 *                 RFS_ORDER(x->file, y->file) ?: RFS_ORDER(x->offset, y->offset))
 */
#define RFS_COMPARE(name, type, x, y, ...)                                                         \
    static int name(const void *x##_, const void *y##_)                                            \
    {                                                                                              \
        type const *x = x##_;                                                                      \
        type const *y = y##_;                                                                      \
        return (__VA_ARGS__);                                                                      \
    }

/*
 * Sorts the N elements of an array; DATA may be NULL if there are none. Elements that are in order
 * already cost N - 1 comparisons.
 */
#define RFS_SORT(data, n, compare) rfs_sort((data), (n), sizeof *(data), (compare))
/* Sorts all of an RFS_VEC. */
#define RFS_SORT_ALL(v, compare) RFS_SORT((v)->data, (v)->n, compare)

/* Likewise, with CTX for a comparison that takes it behind the two elements. */
#define RFS_SORT_BY(data, n, compare, ctx)                                                         \
    rfs_sort_by((data), (n), sizeof *(data), (compare), (ctx))

/* Compares strings of bytes: by the first that differs, else by length. */
static inline int rfs_order_bytes(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    return memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes) ?: RFS_ORDER(a_bytes, b_bytes);
}

static inline void rfs_sort(void *data, size_t n, size_t size,
                            int (*compare)(const void *, const void *))
{
    const char *at = data;
    size_t i = 1;

    for (; i < n && compare(at, at + size) <= 0; i++)
        at += size;
    if (i < n)
        qsort(data, n, size, compare);
}

static inline void rfs_sort_by(void *data, size_t n, size_t size,
                               int (*compare)(const void *, const void *, void *), void *ctx)
{
    const char *at = data;
    size_t i = 1;

    for (; i < n && compare(at, at + size, ctx) <= 0; i++)
        at += size;
    if (i < n)
        qsort_r(data, n, size, compare, ctx);
}

/*
 * Finds the lowest of the numbers [0, N) for which HOLDS, an expression of I, is true, or N. It
 * must be true for all that are higher. O(log N).
 *
 *     for (size_t at = RFS_BISECT(i, list->n, list->data[i].from >= from); at < list->n; at++)
 */
#define RFS_BISECT(i, n, holds)                                                                    \
    __extension__({                                                                                \
        size_t bisect_low = 0, bisect_high = (n);                                                  \
        while (bisect_low < bisect_high) {                                                         \
            const size_t i = bisect_low + (bisect_high - bisect_low) / 2;                          \
            if (holds)                                                                             \
                bisect_high = i;                                                                   \
            else                                                                                   \
                bisect_low = i + 1;                                                                \
        }                                                                                          \
        bisect_low;                                                                                \
    })

/*
 * Finds the number below N whose KEY, an expression of I, equals WANT, or N. Keys ascend. O(log N).
 *
 *     const size_t at = RFS_BISECT_KEY(i, list->n, list->data[i].name, name);
 *     return at < list->n ? &list->data[at] : NULL;
 */
#define RFS_BISECT_KEY(i, n, key, want)                                                            \
    __extension__({                                                                                \
        size_t bisect_at = RFS_BISECT(i, n, (key) >= (want));                                      \
        if (bisect_at < (n)) {                                                                     \
            const size_t i = bisect_at;                                                            \
            bisect_at = (key) == (want) ? bisect_at : (n);                                         \
        }                                                                                          \
        bisect_at;                                                                                 \
    })
