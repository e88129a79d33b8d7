/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the first byte that differs. */
#pragma once

#include "base/std.h"

/* Returns the first byte from AT on, of N, in which A and B differ, or N. */
static inline size_t rfs_differ_at(const void *a, const void *b, size_t at, size_t n)
{
    const unsigned char *x = a;
    const unsigned char *y = b;

    for (; at + 4096 <= n && memcmp(x + at, y + at, 4096) == 0; at += 4096)
        ;
    while (at < n && x[at] == y[at])
        at++;
    return at;
}
