/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/comparison.h"

#include "survey/numbers.h"

#include <math.h>

#define BLOCK 1024
#define LANES RFS_NUMBERS_LANES

static void add(struct rfs_sum *sum, double value)
{
    const double next = sum->sum + value;

    sum->lost +=
        fabs(sum->sum) >= fabs(value) ? (sum->sum - next) + value : (value - next) + sum->sum;
    sum->sum = next;
}

static double total(const struct rfs_sum *sum)
{
    return isfinite(sum->sum) ? sum->sum + sum->lost : sum->sum;
}

static void add_products(struct rfs_comparison *out, const double *a, const double *b, size_t n)
{
    double ab[LANES] = {0}, aa[LANES] = {0}, bb[LANES] = {0};

    for (size_t i = 0; i < n; i += LANES) {
        const size_t lanes = n - i < LANES ? n - i : LANES;
        for (size_t k = 0; k < lanes; k++) {
            ab[k] += a[i + k] * b[i + k];
            aa[k] += a[i + k] * a[i + k];
            bb[k] += b[i + k] * b[i + k];
        }
    }
    add(&out->ab, rfs_numbers_of_lanes(ab));
    add(&out->aa, rfs_numbers_of_lanes(aa));
    add(&out->bb, rfs_numbers_of_lanes(bb));
}

/* Compares numbers that are all finite. */
static void compare_finite(struct rfs_comparison *out, const struct rfs_tolerance *tolerance,
                           const double *a, const double *b, size_t n)
{
    double most = out->most;
    double most_relative = out->most_relative;
    uint64_t same = 0;
    uint64_t beyond = 0;

    for (size_t i = 0; i < n; i++) {
        const double far = fabs(a[i] - b[i]);
        const double size = fabs(b[i]);
        const double relative = far / (size > 0 ? size : (double)INFINITY);
        most = far > most ? far : most;
        most_relative = relative > most_relative ? relative : most_relative;
        same += far == 0;
        beyond += far > tolerance->absolute + tolerance->relative * size;
    }
    out->most = most;
    out->most_relative = most_relative;
    out->same += same;
    out->beyond += beyond;
    add_products(out, a, b, n);
}

/*
 * Takes out the pairs that are not finite on both sides, and counts them. Returns how many are
 * left.
 */
static size_t take_out(struct rfs_comparison *out, double *a, double *b, size_t n)
{
    size_t left = 0;

    for (size_t i = 0; i < n; i++) {
        if (isfinite(a[i]) && isfinite(b[i])) {
            a[left] = a[i];
            b[left++] = b[i];
            continue;
        }
        const bool same = a[i] == b[i] || (isnan(a[i]) && isnan(b[i]));
        out->nan_a += isnan(a[i]) != 0;
        out->nan_b += isnan(b[i]) != 0;
        out->inf_a += isinf(a[i]) != 0;
        out->inf_b += isinf(b[i]) != 0;
        out->same += same;
        out->beyond += !same;
        out->unlike += !same;
        out->apart += !same && !isnan(a[i]) && !isnan(b[i]);
    }
    return left;
}

static bool are_finite(const double *values, size_t n)
{
    double nothing[LANES] = {0}; /* stays 0, or becomes NaN */

    for (size_t i = 0; i < n; i += LANES) {
        const size_t lanes = n - i < LANES ? n - i : LANES;
        for (size_t k = 0; k < lanes; k++)
            nothing[k] += values[i + k] * 0;
    }
    return rfs_numbers_of_lanes(nothing) == 0;
}

/* Compares 64-bit integers, whose differences doubles would lose. */
static void compare_long(struct rfs_comparison *out, const struct rfs_tolerance *tolerance,
                         bool has_sign, const unsigned char *a, const unsigned char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x, y;
        memcpy(&x, a + i * sizeof x, sizeof x);
        memcpy(&y, b + i * sizeof y, sizeof y);
        const bool less = has_sign ? (int64_t)x < (int64_t)y : x < y;
        const double far = (double)(less ? y - x : x - y);
        const double size = fabs(has_sign ? (double)(int64_t)y : (double)y);
        const double relative = size > 0 ? far / size : 0;
        out->most = far > out->most ? far : out->most;
        out->most_relative = relative > out->most_relative ? relative : out->most_relative;
        out->same += x == y;
        out->beyond += far > tolerance->absolute + tolerance->relative * size;
    }
}

void rfs_comparison_add(struct rfs_comparison *comparison, const struct rfs_tolerance *tolerance,
                        const struct rfs_type *type_a, const void *a, const struct rfs_type *type_b,
                        const void *b, size_t n)
{
    const bool exact = rfs_numbers_are_long(type_a) && type_a->dtype == type_b->dtype;
    const unsigned char *from_a = a;
    const unsigned char *from_b = b;
    double x[BLOCK], y[BLOCK];

    comparison->numbers += n;
    for (size_t some; n > 0; n -= some) {
        some = n < BLOCK ? n : BLOCK;
        rfs_numbers_decode(type_a, from_a, some, x);
        rfs_numbers_decode(type_b, from_b, some, y);
        if (exact) {
            compare_long(comparison, tolerance, type_a->dtype == RFS_INT64, from_a, from_b, some);
            add_products(comparison, x, y, some);
        } else {
            const size_t left = are_finite(x, some) && are_finite(y, some)
                                    ? some
                                    : take_out(comparison, x, y, some);
            compare_finite(comparison, tolerance, x, y, left);
        }
        from_a += some * rfs_numbers_bytes(type_a);
        from_b += some * rfs_numbers_bytes(type_b);
    }
}

static void add_sum(struct rfs_sum *sum, const struct rfs_sum *other)
{
    add(sum, other->sum);
    sum->lost += other->lost;
}

void rfs_comparison_merge(struct rfs_comparison *comparison, const struct rfs_comparison *other)
{
    comparison->numbers += other->numbers;
    comparison->same += other->same;
    comparison->beyond += other->beyond;
    comparison->nan_a += other->nan_a;
    comparison->nan_b += other->nan_b;
    comparison->inf_a += other->inf_a;
    comparison->inf_b += other->inf_b;
    comparison->unlike += other->unlike;
    comparison->apart += other->apart;
    if (other->most > comparison->most)
        comparison->most = other->most;
    if (other->most_relative > comparison->most_relative)
        comparison->most_relative = other->most_relative;
    add_sum(&comparison->ab, &other->ab);
    add_sum(&comparison->aa, &other->aa);
    add_sum(&comparison->bb, &other->bb);
}

double rfs_comparison_most(const struct rfs_comparison *comparison)
{
    return comparison->apart > 0 ? (double)INFINITY : comparison->most;
}

double rfs_comparison_most_relative(const struct rfs_comparison *comparison)
{
    return comparison->apart > 0 ? (double)INFINITY : comparison->most_relative;
}

double rfs_comparison_cosine(const struct rfs_comparison *comparison)
{
    const double size = sqrt(total(&comparison->aa)) * sqrt(total(&comparison->bb));
    const double cosine = total(&comparison->ab) / size;

    if (!(size > 0) || isnan(cosine) || comparison->unlike > 0)
        return (double)NAN;
    return cosine > 1 ? 1 : cosine < -1 ? -1 : cosine; /* rounded */
}
