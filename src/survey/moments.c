/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/moments.h"

#include "survey/numbers.h"

#include <math.h>

#define BLOCK 2048
#define LANES RFS_NUMBERS_LANES

/* ---- moments of one block -------------------------------------------------------------------- */

struct sums {
    double sum, min, max;
    uint64_t zeros;
};

/* Sums up in lanes. N is at least 1. */
static struct sums sum_up(const double *values, size_t n)
{
    double sum[LANES] = {0}, min[LANES], max[LANES];
    uint64_t zeros[LANES] = {0};

    for (size_t k = 0; k < LANES; k++)
        min[k] = max[k] = values[0];
    for (size_t i = 0; i < n; i += LANES) {
        const size_t lanes = n - i < LANES ? n - i : LANES;
        for (size_t k = 0; k < lanes; k++) {
            const double v = values[i + k];
            sum[k] += v;
            min[k] = v < min[k] ? v : min[k];
            max[k] = v > max[k] ? v : max[k];
            zeros[k] += v == 0;
        }
    }
    struct sums all = {rfs_numbers_of_lanes(sum), min[0], max[0], 0};
    for (size_t k = 0; k < LANES; k++) {
        all.min = min[k] < all.min ? min[k] : all.min;
        all.max = max[k] > all.max ? max[k] : all.max;
        all.zeros += zeros[k];
    }
    return all;
}

static double sum_squares(const double *values, size_t n, double mean)
{
    double sum[LANES] = {0};

    for (size_t i = 0; i < n; i += LANES) {
        const size_t lanes = n - i < LANES ? n - i : LANES;
        for (size_t k = 0; k < lanes; k++) {
            const double d = values[i + k] - mean;
            sum[k] += d * d;
        }
    }
    return rfs_numbers_of_lanes(sum);
}

/* Moves finite values to the front, and counts the others. Returns how many are finite. */
static size_t pick_finite(double *values, size_t n, struct rfs_moments *moments)
{
    size_t finite = 0;

    for (size_t i = 0; i < n; i++) {
        const double v = values[i];
        if (isfinite(v))
            values[finite++] = v;
        else if (isnan(v))
            moments->nan++;
        else if (v > 0)
            moments->above++;
        else
            moments->below++;
    }
    return finite;
}

static void take_block(double *values, size_t n, struct rfs_moments *moments)
{
    struct sums sums = sum_up(values, n);

    if (!isfinite(sums.sum)) { /* some value is not, or the sum is too large */
        n = pick_finite(values, n, moments);
        if (n == 0)
            return;
        sums = sum_up(values, n);
    }
    moments->finite = n;
    moments->zeros = sums.zeros;
    moments->min = sums.min;
    moments->max = sums.max;
    moments->mean = sums.sum / (double)n;
    moments->squares = sum_squares(values, n, moments->mean);
}

void rfs_moments_merge(struct rfs_moments *moments, const struct rfs_moments *other)
{
    const struct rfs_moments before = *moments;

    if (other->finite > 0 && before.finite == 0) {
        *moments = *other;
    } else if (other->finite > 0) {
        const double n = (double)before.finite + (double)other->finite;
        const double part = (double)other->finite / n;
        const double delta = other->mean - before.mean;
        moments->mean += delta * part;
        moments->squares += other->squares + delta * delta * part * (double)before.finite;
        moments->finite += other->finite;
        moments->zeros += other->zeros;
#define MERGE(field, op)                                                                           \
    (moments->field = other->field op moments->field ? other->field : moments->field)
        MERGE(min, <);
        MERGE(max, >);
        MERGE(least, <);
        MERGE(most, >);
#undef MERGE
    }
    moments->nan = before.nan + other->nan;
    moments->above = before.above + other->above;
    moments->below = before.below + other->below;
}

/* Sets the exact extremes of 64-bit integers. */
static void find_extremes(struct rfs_moments *out, const struct rfs_type *type,
                          const unsigned char *from, size_t n)
{
    out->least = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        uint64_t value;
        memcpy(&value, from + i * sizeof value, sizeof value);
        value ^= type->dtype == RFS_INT64 ? RFS_MOMENTS_SIGN : 0;
        out->least = value < out->least ? value : out->least;
        out->most = value > out->most ? value : out->most;
    }
}

void rfs_moments_add(struct rfs_moments *moments, const struct rfs_type *type, const void *src,
                     size_t n)
{
    const size_t bytes = rfs_numbers_bytes(type);
    const unsigned char *from = src;
    double values[BLOCK];

    for (size_t some; n > 0; n -= some, from += some * bytes) {
        struct rfs_moments block = {0};
        some = n < BLOCK ? n : BLOCK;
        rfs_numbers_decode(type, from, some, values);
        take_block(values, some, &block);
        if (rfs_numbers_are_long(type))
            find_extremes(&block, type, from, some);
        rfs_moments_merge(moments, &block);
    }
}

double rfs_moments_deviation(const struct rfs_moments *moments)
{
    return moments->finite > 0 ? sqrt(moments->squares / (double)moments->finite) : (double)NAN;
}
