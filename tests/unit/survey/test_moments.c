/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics and comparisons of numbers, against sums in long double that know nothing of blocks
 * and merging.
 */
#include "survey/comparison.h"
#include "survey/moments.h"
#include "survey/numbers.h"
#include "tests/support/tree.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct rfs_type type_of(enum rfs_dtype dtype)
{
    return (struct rfs_type){.dtype = (uint8_t)dtype, .kind = RFS_TENSOR};
}

/* ---- element types --------------------------------------------------------------------------- */

static void expect_numbers(enum rfs_dtype dtype, const void *bytes, const double *want, size_t n)
{
    const struct rfs_type type = type_of(dtype);
    double got[16];

    rfs_numbers_decode(&type, bytes, n, got);
    for (size_t i = 0; i < n; i++)
        if (isnan(want[i]) ? !isnan(got[i]) : got[i] != want[i])
            fail_msg("%s number %zu: %g, not %g", rfs_dtype_name(dtype), i, got[i], want[i]);
}

/* Bit patterns and values from IEEE 754 and the OCP's "8-bit floating point specification". */
static void test_numbers_of_each_type(void **state)
{
    (void)state;
    expect_numbers(RFS_BOOL, "\0\1\2", (double[]){0, 1, 1}, 3);
    expect_numbers(RFS_INT4, "\xF8\x07", (double[]){-8, 7}, 2);
    expect_numbers(RFS_INT8, "\x80\x7F", (double[]){-128, 127}, 2);
    expect_numbers(RFS_UINT8, "\x80\xFF", (double[]){128, 255}, 2);
    expect_numbers(RFS_INT16, "\x00\x80", (double[]){-32768}, 1);
    expect_numbers(RFS_UINT16, "\xFF\xFF", (double[]){65535}, 1);
    expect_numbers(RFS_INT32, "\0\0\0\x80", (double[]){-2147483648.0}, 1);
    expect_numbers(RFS_UINT32, "\xFF\xFF\xFF\xFF", (double[]){4294967295.0}, 1);
    expect_numbers(RFS_INT64, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", (double[]){-1}, 1);
    expect_numbers(RFS_UINT64, "\0\0\0\0\0\0\0\x80", (double[]){0x1p63}, 1);
    expect_numbers(RFS_FLOAT16, "\x00\x3C\x01\x00\xFF\x7B\x00\x7C\x01\x7E",
                   (double[]){1, 0x1p-24, 65504, (double)INFINITY, (double)NAN}, 5);
    expect_numbers(RFS_BFLOAT16, "\x80\x3F\x49\x40\x80\xFF",
                   (double[]){1, 3.140625, -(double)INFINITY}, 3);
    expect_numbers(RFS_FLOAT8_E4M3FN, "\x38\x01\x7E\x7F\xFE",
                   (double[]){1, 0x1p-9, 448, (double)NAN, -448}, 5);
    expect_numbers(RFS_FLOAT8_E5M2, "\x3C\x01\x7B\x7C\x7D\xFC",
                   (double[]){1, 0x1p-16, 57344, (double)INFINITY, (double)NAN, -(double)INFINITY},
                   6);
    expect_numbers(RFS_FLOAT32, "\0\0\x80\x3F", (double[]){1}, 1);
    expect_numbers(RFS_FLOAT64, "\0\0\0\0\0\0\xF0\xBF", (double[]){-1}, 1);
    expect_numbers(RFS_COMPLEX64, "\0\0\x80\x3F\0\0\x80\xBF", (double[]){1, -1}, 2);
}

static void test_types_without_numbers(void **state)
{
    struct rfs_type type = type_of(RFS_STR);

    (void)state;
    type.bytes = 40;
    assert_int_equal(rfs_numbers_each(&type), 0);
    assert_int_equal(rfs_numbers_count(&type), 0);
    type = type_of(RFS_HIFLOAT8);
    assert_int_equal(rfs_numbers_each(&type), 0);
    type = type_of(RFS_FLOAT32);
    type.kind = RFS_MAP;
    assert_int_equal(rfs_numbers_each(&type), 0);
    type = type_of(RFS_COMPLEX128);
    type.bytes = 32;
    assert_int_equal(rfs_numbers_each(&type), 2);
    assert_int_equal(rfs_numbers_bytes(&type), 8);
    assert_int_equal(rfs_numbers_count(&type), 4);
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Another reckoning of the same. */
static void naive_moments(const double *values, size_t n, struct rfs_moments *out)
{
    long double sum = 0;
    long double squares = 0;

    *out = (struct rfs_moments){.min = (double)INFINITY, .max = -(double)INFINITY};
    for (size_t i = 0; i < n; i++) {
        const double v = values[i];
        out->nan += isnan(v) != 0;
        out->above += v > 0 && isinf(v);
        out->below += v < 0 && isinf(v);
        if (!isfinite(v))
            continue;
        out->finite++;
        out->zeros += v == 0;
        out->min = fmin(out->min, v);
        out->max = fmax(out->max, v);
        sum += (long double)v;
    }
    if (out->finite == 0)
        return;
    const long double mean = sum / (long double)out->finite;
    for (size_t i = 0; i < n; i++)
        if (isfinite(values[i]))
            squares += ((long double)values[i] - mean) * ((long double)values[i] - mean);
    out->mean = (double)mean;
    out->squares = (double)squares;
}

static void near(double got, double want, double scale, const char *what)
{
    if (fabs(got - want) > 1e-12 * scale)
        fail_msg("%s: %.17g, not %.17g", what, got, want);
}

static void expect_moments(const struct rfs_moments *got, const struct rfs_moments *want)
{
    assert_true(got->finite == want->finite && got->nan == want->nan);
    assert_true(got->above == want->above && got->below == want->below);
    assert_true(got->zeros == want->zeros);
    if (want->finite == 0) {
        assert_true(isnan(rfs_moments_deviation(got)));
        return;
    }
    assert_true(got->min == want->min && got->max == want->max);
    const double scale = fmax(fabs(want->min), fabs(want->max));
    near(got->mean, want->mean, scale, "mean");
    near(rfs_moments_deviation(got), sqrt(want->squares / (double)want->finite), scale,
         "deviation");
}

static double random_value(uint64_t *seed, unsigned kind)
{
    const double unit = (double)test_below(seed, 1u << 30) / (1u << 29) - 1;

    switch (kind) {
    case 0:
        return unit;
    case 1:
        return 1e6 + unit; /* a small deviation beside a large mean */
    case 2:
        return ldexp(unit, (int)test_below(seed, 80) - 40);
    case 3:
        return (double)test_below(seed, 3) - 1;
    default: {
        const uint32_t which = test_below(seed, 20);
        return which == 0   ? (double)NAN
               : which == 1 ? (double)INFINITY
               : which == 2 ? -(double)INFINITY
                            : unit;
    }
    }
}

static void test_random_moments(void **state)
{
    const struct rfs_type type = type_of(RFS_FLOAT64);
    uint64_t seed = test_seed();

    (void)state;
    for (unsigned round = 0; round < 60; round++) {
        const size_t n = test_below(&seed, round % 3 == 0 ? 40 : 30000);
        double *values = calloc(n + 1, sizeof *values);
        struct rfs_moments got = {0};
        struct rfs_moments want;
        assert_non_null(values);
        for (size_t i = 0; i < n; i++)
            values[i] = random_value(&seed, round % 5);
        for (size_t at = 0, some; at < n; at += some) {
            struct rfs_moments part = {0};
            some = test_below(&seed, 9000) + 1;
            some = some < n - at ? some : n - at;
            rfs_moments_add(&part, &type, values + at, some);
            rfs_moments_merge(&got, &part);
        }
        naive_moments(values, n, &want);
        expect_moments(&got, &want);
        free(values);
    }
}

static void test_extremes(void **state)
{
    const struct rfs_type f64 = type_of(RFS_FLOAT64), i64 = type_of(RFS_INT64),
                          u64 = type_of(RFS_UINT64);
    struct rfs_moments moments = {0};

    (void)state;
    rfs_moments_add(&moments, &i64, (int64_t[]){INT64_MAX, INT64_MIN, INT64_MAX - 1}, 3);
    assert_true(moments.least == 0 && moments.most == UINT64_MAX);
    moments = (struct rfs_moments){0};
    rfs_moments_add(&moments, &u64, (uint64_t[]){UINT64_MAX - 1, 7}, 2);
    assert_true(moments.least == 7 && moments.most == UINT64_MAX - 1);
    moments = (struct rfs_moments){0};
    rfs_moments_add(&moments, &f64, (double[]){-0x1.8p1023, 0x1p-1074, 0x1.8p1023}, 3);
    assert_true(moments.min == -0x1.8p1023 && moments.max == 0x1.8p1023);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static void test_known_comparisons(void **state)
{
    const struct rfs_type f32 = type_of(RFS_FLOAT32), bf16 = type_of(RFS_BFLOAT16);
    const float a[] = {1, 2, (float)NAN, (float)NAN, (float)INFINITY, (float)INFINITY, -0.0f, 3};
    const float b[] = {1, 2.5f, (float)NAN, 1, (float)INFINITY, -(float)INFINITY, 0, 0};
    const struct rfs_tolerance none = {0, 0}, half = {0, 0.5}, fifth = {0.2, 0};
    struct rfs_comparison found = {0};

    (void)state;
    rfs_comparison_add(&found, &none, &f32, a, &f32, b, 8);
    assert_int_equal(found.numbers, 8);
    assert_int_equal(found.same, 4); /* 1, NaN, Inf, 0 */
    assert_int_equal(found.beyond, 4);
    assert_true(found.nan_a == 2 && found.nan_b == 1);
    assert_true(found.most == 3 && found.most_relative == 0.5 / 2.5);
    found = (struct rfs_comparison){0};
    rfs_comparison_add(&found, &half, &f32, a, &f32, b, 8);
    assert_int_equal(found.beyond, 3); /* a NaN, an infinity, and 3 of 0 */
    found = (struct rfs_comparison){0};
    rfs_comparison_add(&found, &fifth, &f32, a, &f32, b, 2);
    assert_int_equal(found.beyond, 0);

    /* Values of two types: 1.5 and pi's bfloat16. */
    found = (struct rfs_comparison){0};
    rfs_comparison_add(&found, &none, &f32, (float[]){1.5f, 3.140625f}, &bf16, "\xC0\x3F\x49\x40",
                       2);
    assert_int_equal(found.same, 2);
    assert_true(rfs_comparison_cosine(&found) == 1);
}

/* What numpy says of infinities: inf - inf is NaN, and everything else is infinitely far away. */
static void test_infinite_comparisons(void **state)
{
    static const float values[] = {1, -2, 0, INFINITY, -INFINITY, NAN};
    const struct rfs_type f32 = type_of(RFS_FLOAT32);
    const struct rfs_tolerance all = {1, FLT_MAX};
    struct rfs_comparison sum = {0};

    (void)state;
    for (size_t i = 0; i < 36; i++) {
        const float a[] = {3, values[i / 6]}, b[] = {3, values[i % 6]};
        const bool nan = isnan(a[1]) || isnan(b[1]), inf = isinf(a[1]) || isinf(b[1]);
        const bool same = a[1] == b[1] || (isnan(a[1]) && isnan(b[1]));
        struct rfs_comparison found = {0};
        rfs_comparison_add(&found, &all, &f32, a, &f32, b, 2);
        assert_int_equal(found.same, 1 + same);
        assert_int_equal(found.beyond, !same && (nan || inf));
        assert_int_equal(found.inf_a, isinf(a[1]) != 0);
        assert_int_equal(found.inf_b, isinf(b[1]) != 0);
        assert_int_equal(isinf(rfs_comparison_most(&found)) != 0, inf && !nan && !same);
        assert_int_equal(isinf(rfs_comparison_most_relative(&found)) != 0, inf && !nan && !same);
        assert_int_equal(isnan(rfs_comparison_cosine(&found)) != 0, (nan || inf) && !same);
        rfs_comparison_merge(&sum, &found);
    }
    assert_true(sum.inf_a == 12 && sum.inf_b == 12 && sum.apart == 2 * 2 * 3 + 2);
    assert_true(isinf(rfs_comparison_most(&sum)) && isnan(rfs_comparison_cosine(&sum)));
}

static void test_long_integers(void **state)
{
    const struct rfs_type i64 = type_of(RFS_INT64), u64 = type_of(RFS_UINT64);
    const struct rfs_tolerance none = {0, 0};
    struct rfs_comparison found = {0};

    (void)state;
    rfs_comparison_add(&found, &none, &i64, (int64_t[]){INT64_MAX, INT64_MIN, 5}, &i64,
                       (int64_t[]){INT64_MAX - 1, INT64_MAX, 5}, 3);
    assert_int_equal(found.same, 1);
    assert_int_equal(found.beyond, 2);
    assert_true(found.most == 0x1p64);
    found = (struct rfs_comparison){0};
    rfs_comparison_add(&found, &none, &u64, (uint64_t[]){UINT64_MAX}, &u64,
                       (uint64_t[]){UINT64_MAX - 1}, 1);
    assert_true(found.same == 0 && found.most == 1);
}

static void test_random_comparisons(void **state)
{
    const struct rfs_type f64 = type_of(RFS_FLOAT64);
    uint64_t seed = test_seed();

    (void)state;
    for (unsigned round = 0; round < 30; round++) {
        const size_t n = test_below(&seed, 20000) + 1;
        double *a = calloc(n, sizeof *a);
        double *b = calloc(n, sizeof *b);
        const struct rfs_tolerance tolerance = {1e-3, 1e-4};
        struct rfs_comparison got = {0};
        uint64_t same = 0, beyond = 0;
        long double ab = 0, aa = 0, bb = 0;
        double most = 0, most_relative = 0;
        assert_non_null(a);
        assert_non_null(b);
        for (size_t i = 0; i < n; i++) {
            a[i] = random_value(&seed, round % 5);
            b[i] = test_below(&seed, 3) ? a[i] * (1 + random_value(&seed, 0) * 2e-3) : a[i];
            same += a[i] == b[i] || (isnan(a[i]) && isnan(b[i]));
            if (!isfinite(a[i]) || !isfinite(b[i])) {
                beyond += !(a[i] == b[i] || (isnan(a[i]) && isnan(b[i])));
                continue;
            }
            const double far = fabs(a[i] - b[i]);
            beyond += far > tolerance.absolute + tolerance.relative * fabs(b[i]);
            most = fmax(most, far);
            if (b[i] != 0)
                most_relative = fmax(most_relative, far / fabs(b[i]));
            ab += (long double)a[i] * (long double)b[i];
            aa += (long double)a[i] * (long double)a[i];
            bb += (long double)b[i] * (long double)b[i];
        }
        for (size_t at = 0, some; at < n; at += some) {
            struct rfs_comparison part = {0};
            some = test_below(&seed, 9000) + 1;
            some = some < n - at ? some : n - at;
            rfs_comparison_add(&part, &tolerance, &f64, a + at, &f64, b + at, some);
            rfs_comparison_merge(&got, &part);
        }
        assert_true(got.numbers == n && got.same == same && got.beyond == beyond);
        assert_true(got.most == most && got.most_relative == most_relative);
        if (aa > 0 && bb > 0)
            near(rfs_comparison_cosine(&got), (double)(ab / sqrtl(aa) / sqrtl(bb)), 1, "cosine");
        else
            assert_true(isnan(rfs_comparison_cosine(&got)));
        free(a);
        free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_of_each_type), cmocka_unit_test(test_types_without_numbers),
        cmocka_unit_test(test_random_moments),       cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_known_comparisons),    cmocka_unit_test(test_long_integers),
        cmocka_unit_test(test_random_comparisons),   cmocka_unit_test(test_infinite_comparisons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
