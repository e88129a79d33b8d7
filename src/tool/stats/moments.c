/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/stats/moments.h"

#include "tool/common/numbers.h"

#include <math.h>

#define BLOCK 4096
#define LANES 8
#define LEAST_EXPONENT (-1000)
#define MOST_EXPONENT 1023

/* ---- one block ------------------------------------------------------------------------------- */

struct sums {
    double sum, min, max;
    uint64_t zeros;
};

/* Lanes, so that the compiler may use vectors and errors grow with n / 8. N is at least 1. */
static struct sums sum_up(const double *values, size_t n)
{
    double sum[LANES] = {0}, min[LANES], max[LANES];
    uint64_t zeros[LANES] = {0};
    size_t i = 0;

    for (size_t k = 0; k < LANES; k++)
        min[k] = max[k] = values[0];
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            const double v = values[i + k];
            sum[k] += v;
            min[k] = v < min[k] ? v : min[k];
            max[k] = v > max[k] ? v : max[k];
            zeros[k] += v == 0;
        }
    for (size_t k = 0; i < n; i++, k++) {
        const double v = values[i];
        sum[k] += v;
        min[k] = v < min[k] ? v : min[k];
        max[k] = v > max[k] ? v : max[k];
        zeros[k] += v == 0;
    }
    struct sums all = {0, min[0], max[0], 0};
    for (size_t k = 0; k < LANES; k++) {
        all.min = min[k] < all.min ? min[k] : all.min;
        all.max = max[k] > all.max ? max[k] : all.max;
        all.zeros += zeros[k];
    }
    all.sum = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    return all;
}

static double sum_squares(const double *values, size_t n, double mean)
{
    double sum[LANES] = {0};
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            const double d = values[i + k] - mean;
            sum[k] += d * d;
        }
    for (size_t k = 0; i < n; i++, k++) {
        const double d = values[i] - mean;
        sum[k] += d * d;
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* Moves the finite ones to the front, and counts the others. How many there are. */
static size_t keep_finite(double *values, size_t n, struct rfs_moments *moments)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        const double v = values[i];
        if (isfinite(v))
            values[kept++] = v;
        else if (isnan(v))
            moments->nan++;
        else if (v > 0)
            moments->above++;
        else
            moments->below++;
    }
    return kept;
}

/* The exponent e of the histogram for values from MIN to MAX. */
static int exponent_of(double min, double max)
{
    const double most = fabs(min) > fabs(max) ? fabs(min) : fabs(max);
    int exponent = LEAST_EXPONENT;

    if (most > 0)
        frexp(most, &exponent);
    return exponent < LEAST_EXPONENT  ? LEAST_EXPONENT
           : exponent > MOST_EXPONENT ? MOST_EXPONENT
                                      : exponent;
}

static void count_bins(const double *values, size_t n, int exponent, uint64_t *bins)
{
    const double scale = ldexp(RFS_BINS / 2, -exponent); /* exact, and so are the products */
    uint32_t counts[2][RFS_BINS] = {{0}};                /* two, so that neighbours do not wait */

    for (size_t i = 0; i < n; i++) {
        const double v = values[i] * scale;
        int bin = (int)v;
        bin += RFS_BINS / 2 - (v < bin); /* floor */
        bin = bin < 0 ? 0 : bin > RFS_BINS - 1 ? RFS_BINS - 1 : bin;
        counts[i & 1][bin]++;
    }
    for (size_t b = 0; b < RFS_BINS; b++)
        bins[b] += (uint64_t)counts[0][b] + counts[1][b];
}

static void take_block(double *values, size_t n, struct rfs_moments *moments)
{
    struct sums sums = sum_up(values, n);

    if (!isfinite(sums.sum)) { /* some is not, or the sum is too large */
        n = keep_finite(values, n, moments);
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
    moments->exponent = exponent_of(sums.min, sums.max);
    count_bins(values, n, moments->exponent, moments->bins);
}

#define EXTREMES(T, from, n, low, high)                                                            \
    do {                                                                                           \
        T value;                                                                                   \
        memcpy(&value, from, sizeof value);                                                        \
        low = high = value;                                                                        \
        for (size_t i = 1; i < (n); i++) {                                                         \
            memcpy(&value, (from) + i * sizeof value, sizeof value);                               \
            low = value < low ? value : low;                                                       \
            high = value > high ? value : high;                                                    \
        }                                                                                          \
    } while (0)

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
        if (type->dtype == RFS_INT64)
            EXTREMES(int64_t, from, some, block.long_min, block.long_max);
        else if (type->dtype == RFS_UINT64)
            EXTREMES(uint64_t, from, some, block.ulong_min, block.ulong_max);
        rfs_moments_merge(moments, &block);
    }
}

/* ---- several --------------------------------------------------------------------------------- */

/* The bins of a smaller exponent, in the larger one's. */
static void merge_bins(struct rfs_moments *moments, const struct rfs_moments *other)
{
    uint64_t bins[RFS_BINS] = {0};
    const int most = moments->exponent > other->exponent ? moments->exponent : other->exponent;
    const struct rfs_moments *both[] = {moments, other};

    for (size_t m = 0; m < 2; m++) {
        const int up = most - both[m]->exponent;
        const int shift = up > 6 ? 6 : up; /* bins on each side: 32 */
        for (int b = 0; b < RFS_BINS; b++) {
            const int side = b - RFS_BINS / 2;
            /* floor(side / 2^shift) */
            const int to = side >= 0 ? side >> shift : -((-side - 1) >> shift) - 1;
            bins[to + RFS_BINS / 2] += both[m]->bins[b];
        }
    }
    memcpy(moments->bins, bins, sizeof bins);
    moments->exponent = most;
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
        MERGE(long_min, <);
        MERGE(long_max, >);
        MERGE(ulong_min, <);
        MERGE(ulong_max, >);
#undef MERGE
        merge_bins(moments, other);
    }
    moments->nan = before.nan + other->nan;
    moments->above = before.above + other->above;
    moments->below = before.below + other->below;
}

double rfs_moments_deviation(const struct rfs_moments *moments)
{
    return moments->finite > 0 ? sqrt(moments->squares / (double)moments->finite) : (double)NAN;
}
