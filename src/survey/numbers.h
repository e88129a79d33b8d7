/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elements of a tensor as doubles. Integers of 64 bits are rounded, all others exact. A complex
 * element is two numbers, the real and the imaginary part; a bool is 0 or 1; an int4 lies in a
 * byte. Texts, map tensors and HiFloat8 have no numbers here.
 */
#pragma once

#include "formats/index.h"

/* Returns how many numbers an element has; 0: none. */
uint32_t rfs_numbers_each(const struct rfs_type *type);
/* Returns the bytes of one of the numbers. */
uint32_t rfs_numbers_bytes(const struct rfs_type *type);
/* Returns how many numbers a tensor has. */
uint64_t rfs_numbers_count(const struct rfs_type *type);

/* Returns whether they are integers of 64 bits, which doubles do not tell apart. */
static inline bool rfs_numbers_are_long(const struct rfs_type *type)
{
    return type->dtype == RFS_INT64 || type->dtype == RFS_UINT64;
}
static inline bool rfs_numbers_are_integers(const struct rfs_type *type)
{
    return type->dtype <= RFS_UINT64;
}

/* Decodes N numbers from SRC, which needs no alignment. */
void rfs_numbers_decode(const struct rfs_type *type, const void *src, size_t n, double *out);

/* Sums are taken in lanes, so that the compiler may use vectors and errors grow with n / 8. */
#define RFS_NUMBERS_LANES 8
/* Returns the sum of all lanes. */
static inline double rfs_numbers_of_lanes(const double lane[RFS_NUMBERS_LANES])
{
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}
