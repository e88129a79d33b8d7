/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds how far the numbers of two tensors are apart, in one pass and constant memory.
 *
 * Two numbers are the same if they are equal, or both NaN. They are within the tolerance if they
 * are the same, or both finite and |a - b| <= absolute + relative * |b|, as numpy.isclose has it.
 * Differences and the cosine are of the pairs that are finite on both sides; the relative
 * difference is |a - b| / |b| where b is not 0. Integers of 64 bits of one type are compared
 * exactly.
 *
 * Sums are taken in eight lanes over blocks of 4,096, and the blocks' sums added with Neumaier's
 * compensation.
 */
#pragma once

#include "view/inspect.h"

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
    uint64_t nan_a, nan_b;
    double most, most_relative; /* greatest differences; never NaN */
    struct rfs_sum ab, aa, bb;  /* sums of products */
};

/* Compares N pairs; both types have numbers, and equally many an element. */
void rfs_diff_add(struct rfs_comparison *comparison, const struct rfs_tolerance *tolerance,
                  const struct rfs_type *type_a, const void *a, const struct rfs_type *type_b,
                  const void *b, size_t n);
/* Adds what was found in other pairs. */
void rfs_diff_merge(struct rfs_comparison *comparison, const struct rfs_comparison *other);
/* Returns the cosine of the angle between the two; NaN when one is 0, or without numbers. */
double rfs_diff_cosine(const struct rfs_comparison *comparison);
