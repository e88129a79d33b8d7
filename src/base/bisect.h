/* SPDX-License-Identifier: Apache-2.0 */
/* Bisection. */
#ifndef RFS_BASE_BISECT_H
#define RFS_BASE_BISECT_H

#include <stddef.h>

/*
 * The lowest of the numbers [0, N) for which HOLDS, an expression of I, is true, or N. It must be
 * true for all that are higher. O(log N).
 *
 *     const size_t at = RFS_BISECT(i, list->n, list->data[i].name >= name);
 *     return at < list->n && list->data[at].name == name ? &list->data[at] : NULL;
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

#endif
