/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes statistics of many numbers, in one pass and constant memory.
 *
 * Everything but the counts of NaN and infinities is of the finite numbers. Mean and deviation: the
 * numbers are taken in blocks of 4,096, whose mean is a sum of doubles in eight lanes and whose
 * squares are of the differences from that mean; blocks are merged by the formula of Chan, Golub
 * and LeVeque ("Updating Formulae and a Pairwise Algorithm", 1979). Relative errors stay around
 * 1e-12 for a billion numbers of one sign. Sums beyond the range of doubles are infinite.
 *
 * Zero-initialise. Merging is not commutative to the last bit: do it in a fixed order.
 */
#pragma once

#include "formats/index.h"

#define RFS_MOMENTS_SIGN (UINT64_C(1) << 63)

struct rfs_moments {
    uint64_t finite, nan, above, below, zeros; /* counts; above: +Inf, below: -Inf */
    double min, max;                           /* set if finite > 0 */
    uint64_t least, most; /* exact extremes of 64-bit integers; the sign's bit is inverted */
    double mean, squares; /* squares: summed squares of the differences from the mean */
};

/* Adds N numbers of a type that has some, at SRC. */
void rfs_moments_add(struct rfs_moments *moments, const struct rfs_type *type, const void *src,
                     size_t n);
/* Adds the numbers of OTHER. */
void rfs_moments_merge(struct rfs_moments *moments, const struct rfs_moments *other);
/* Returns the deviation of the population, as numpy's std; NaN when there is no number. */
double rfs_moments_deviation(const struct rfs_moments *moments);
