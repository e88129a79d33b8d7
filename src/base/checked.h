/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on sizes from files: each returns true when the result fits, and stores it then. */
#pragma once

#include "base/std.h"

static inline bool rfs_add_u64(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool rfs_mul_u64(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

static inline bool rfs_add_size(size_t a, size_t b, size_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool rfs_mul_size(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

static inline uint64_t rfs_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns A / B, rounded up; B is not 0. */
static inline uint64_t rfs_ceil_u64(uint64_t a, uint64_t b)
{
    return a / b + (a % b > 0);
}

/* Returns the greatest common divisor. */
static inline uint64_t rfs_gcd_u64(uint64_t a, uint64_t b)
{
    while (b > 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static inline uint64_t rfs_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
