/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says how far the numbers of two tensors are apart, in one pass and constant memory. Where a copy,
 * or what a mount shows, is compared, bytes count and not numbers (base/differ.h): -0 is not 0
 * there, and a NaN is the same if its bits are.
 *
 * Two numbers are the same if they are equal, or both NaN. They are within the tolerance if they
 * are the same, or both finite and |a - b| <= absolute + relative * |b|, as numpy.isclose has it.
 * The relative difference is |a - b| / |b| where b is not 0. Pairs of the same infinity, or of two
 * NaNs, add nothing to the differences and the cosine. Of other pairs with an infinity the
 * differences are infinite; where one is NaN, there is none. Both leave no cosine. Integers of 64
 * bits of one type are compared exactly.
 *
 * Sums are taken in eight lanes over blocks of 4,096, and the blocks' sums added with Neumaier's
 * compensation.
 */
#pragma once

#include "formats/index.h"

struct rfs_tolerance {
    double relative, absolute; /* neither is negative */
};

/* A sum and its lost low bits. */
struct rfs_sum {
    double sum, lost;
};

/* What was found; zero-initialise. */
struct rfs_comparison {
    uint64_t numbers; /* pairs */
    uint64_t same;    /* pairs that are the same */
    uint64_t beyond;  /* pairs that are beyond the tolerance */
    uint64_t nan_a, nan_b, inf_a, inf_b;
    uint64_t unlike;            /* pairs that are neither finite on both sides nor the same */
    uint64_t apart;             /* those of them without a NaN */
    double most, most_relative; /* greatest differences of pairs that are finite; never NaN */
    struct rfs_sum ab, aa, bb;  /* sums of products */
};

/* Compares N pairs; both types have numbers, and equally many an element. */
void rfs_comparison_add(struct rfs_comparison *comparison, const struct rfs_tolerance *tolerance,
                        const struct rfs_type *type_a, const void *a, const struct rfs_type *type_b,
                        const void *b, size_t n);
/* Adds what was found in other pairs. */
void rfs_comparison_merge(struct rfs_comparison *comparison, const struct rfs_comparison *other);
/* Returns the greatest difference; infinite where a pair is. */
double rfs_comparison_most(const struct rfs_comparison *comparison);
/* Returns the greatest relative difference; infinite where a pair's difference is. */
double rfs_comparison_most_relative(const struct rfs_comparison *comparison);
/* Returns the cosine of the angle between the two; NaN for none: one is 0, or not finite alone. */
double rfs_comparison_cosine(const struct rfs_comparison *comparison);
