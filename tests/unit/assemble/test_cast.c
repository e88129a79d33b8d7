/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions against a reference that knows values and no bit tricks: a pattern is decoded by
 * ldexp, and the nearest of a target's values is found by bisection over all of them, in long
 * double, which holds every value and every middle between two neighbours exactly.
 */
#include "assemble/cast.h"

#include "support.h"

#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))
#define RANDOM_VALUES 20000

static struct random rng;

struct format {
    enum rfs_dtype dtype;
    unsigned fraction, exponent; /* bits */
    bool finite_only;            /* no infinities; the largest pattern alone is a NaN */
};

static const struct format sources[] = {
    {RFS_FLOAT16, 10, 5, false},  {RFS_BFLOAT16, 7, 8, false},     {RFS_FLOAT32, 23, 8, false},
    {RFS_FLOAT64, 52, 11, false}, {RFS_FLOAT8_E4M3FN, 3, 4, true}, {RFS_FLOAT8_E5M2, 2, 5, false},
};
static const struct format *const targets = sources; /* the first four */
enum { TARGETS = 4 };

static unsigned width(const struct format *format)
{
    return 1 + format->exponent + format->fraction;
}

static uint64_t infinite(const struct format *format)
{
    return ((UINT64_C(1) << format->exponent) - 1) << format->fraction;
}

static uint64_t magnitude_of(const struct format *format, uint64_t bits)
{
    return bits & ((UINT64_C(1) << (width(format) - 1)) - 1);
}

static bool is_nan(const struct format *format, uint64_t bits)
{
    const uint64_t magnitude = magnitude_of(format, bits);
    return format->finite_only ? magnitude == 0x7f : magnitude > infinite(format);
}

/*
 * The value of a pattern without a sign; of the infinite one, what would come next if it were
 * finite.
 */
static long double value_of(const struct format *format, uint64_t magnitude)
{
    const int bias = (1 << (format->exponent - 1)) - 1;
    const int e = (int)(magnitude >> format->fraction);
    const uint64_t f = magnitude & ((UINT64_C(1) << format->fraction) - 1);
    const uint64_t lead = e > 0 ? UINT64_C(1) << format->fraction : 0;
    return ldexpl((long double)(lead + f), (e > 0 ? e : 1) - bias - (int)format->fraction);
}

/* The pattern of the target that is nearest to a value without a sign; of two, the even one. */
static uint64_t nearest(const struct format *to, long double value)
{
    uint64_t low = 0, high = infinite(to);
    if (value >= value_of(to, high))
        return high;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (value_of(to, middle) <= value)
            low = middle;
        else
            high = middle;
    }
    const long double middle = (value_of(to, low) + value_of(to, high)) / 2;
    if (value < middle)
        return low;
    return value > middle || low % 2 == 1 ? high : low;
}

/*
 * A quiet NaN with the sign and the leading bits of the payload that fit, or with zeros behind it.
 * BFloat16 has only one, and its own keep their bits as Float32.
 */
static uint64_t nan_of(const struct format *to, const struct format *from, uint64_t bits)
{
    const uint64_t sign = bits >> (width(from) - 1) << (width(to) - 1);
    const uint64_t f = magnitude_of(from, bits) & ((UINT64_C(1) << from->fraction) - 1);
    const uint64_t payload = from->fraction > to->fraction ? f >> (from->fraction - to->fraction)
                                                           : f << (to->fraction - from->fraction);

    if (to->dtype == RFS_BFLOAT16)
        return 0x7fc0;
    if (from->dtype == RFS_BFLOAT16 && to->dtype == RFS_FLOAT32)
        return bits << 16;
    return sign | infinite(to) | UINT64_C(1) << (to->fraction - 1) | payload;
}

static uint64_t expected(const struct format *to, const struct format *from, uint64_t bits)
{
    const uint64_t magnitude = magnitude_of(from, bits);
    const uint64_t sign = bits >> (width(from) - 1) << (width(to) - 1);
    if (to->dtype == from->dtype)
        return bits;
    if (is_nan(from, bits))
        return nan_of(to, from, bits);
    if (!from->finite_only && magnitude == infinite(from))
        return sign | infinite(to);
    return sign | nearest(to, value_of(from, magnitude));
}

static void store(unsigned char *at, const struct format *format, uint64_t bits)
{
    memcpy(at, &bits, width(format) / 8);
}

static uint64_t load(const unsigned char *at, const struct format *format)
{
    uint64_t bits = 0;
    memcpy(&bits, at, width(format) / 8);
    return bits;
}

typedef void convert_fn(enum rfs_dtype, void *, enum rfs_dtype, const void *, size_t);
static convert_fn *const ways[] = {rfs_cast, rfs_cast_portably};

/* N patterns at odd addresses, in memory of exactly their size. */
static void check(const struct format *to, const struct format *from, const uint64_t *patterns,
                  size_t n)
{
    const size_t to_bytes = width(to) / 8, from_bytes = width(from) / 8;
    const size_t at = random_below(&rng, 9), out = random_below(&rng, 9);
    unsigned char *src = malloc(at + n * from_bytes);
    unsigned char *dst = malloc(out + n * to_bytes);
    assert_true(src && dst);
    for (size_t i = 0; i < n; i++)
        store(src + at + i * from_bytes, from, patterns[i]);
    for (size_t w = 0; w < ARRAY_SIZE(ways); w++) {
        memset(dst + out, 0x5a, n * to_bytes);
        ways[w](to->dtype, dst + out, from->dtype, src + at, n);
        for (size_t i = 0; i < n; i++) {
            const uint64_t got = load(dst + out + i * to_bytes, to);
            const uint64_t want = expected(to, from, patterns[i]);
            if (got != want)
                fail_msg("%s %#llx as %s: %#llx, not %#llx (%s)", rfs_dtype_name(from->dtype),
                         (unsigned long long)patterns[i], rfs_dtype_name(to->dtype),
                         (unsigned long long)got, (unsigned long long)want,
                         w == 0 ? "as it is done here" : "portably");
        }
    }
    free(src);
    free(dst);
}

static void test_every_pattern_of_16_bits_and_fewer(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_SIZE(sources); s++) {
        const struct format *from = &sources[s];
        if (width(from) > 16)
            continue;
        const size_t n = (size_t)1 << width(from);
        uint64_t *patterns = malloc(n * sizeof *patterns);
        assert_non_null(patterns);
        for (size_t i = 0; i < n; i++)
            patterns[i] = i;
        for (size_t t = 0; t < TARGETS; t++)
            check(&targets[t], from, patterns, n);
        free(patterns);
    }
}

/* The pattern in FROM of a value, as near as that can be; values come from narrower formats. */
static uint64_t pattern_of(const struct format *from, long double value)
{
    return nearest(from, value);
}

/* Each value of a 16-bit target, the middle to its neighbour, and the patterns beside those. */
static void test_ties_and_their_neighbours(void **state)
{
    (void)state;
    for (size_t s = 0; s < TARGETS; s++) {
        const struct format *from = &sources[s];
        for (size_t t = 0; t < TARGETS; t++) {
            const struct format *to = &targets[t];
            const uint64_t step = width(to) > 16 ? infinite(to) / 30011 : 1;
            uint64_t patterns[12];
            if (to->fraction >= from->fraction)
                continue;
            for (uint64_t m = 0; m < infinite(to); m += step + (width(to) > 16 ? m % 2 : 0)) {
                const long double low = value_of(to, m), high = value_of(to, m + 1);
                const uint64_t at = pattern_of(from, low);
                const uint64_t tie = pattern_of(from, (low + high) / 2);
                for (size_t i = 0; i < 3; i++) {
                    patterns[2 * i] = at + i - (at > 0);
                    patterns[2 * i + 1] = tie + i - (tie > 0);
                }
                for (size_t i = 0; i < 6; i++)
                    patterns[6 + i] = patterns[i] | UINT64_C(1) << (width(from) - 1);
                check(to, from, patterns, ARRAY_SIZE(patterns));
            }
        }
    }
}

/* Any bits; and around the ends of what the target has, where random bits of Float64 rarely are. */
static uint64_t random_pattern(const struct format *to, const struct format *from)
{
    const uint64_t any = random_next(&rng) >> (64 - width(from));
    const uint64_t sign = any & UINT64_C(1) << (width(from) - 1);
    if (random_below(&rng, 2) == 0)
        return any;
    const uint64_t ends[] = {0, 1, (UINT64_C(1) << to->fraction), infinite(to)};
    const uint64_t end = pattern_of(from, value_of(to, ends[random_below(&rng, 4)]));
    const uint64_t reach = random_next(&rng) >> random_in(&rng, 64 - from->fraction, 63);
    const bool below = random_below(&rng, 2) == 0;
    return sign | magnitude_of(from, below && reach <= end ? end - reach : end + reach);
}

static void test_random_values(void **state)
{
    (void)state;
    for (size_t s = 0; s < TARGETS; s++) {
        for (size_t t = 0; t < TARGETS; t++) {
            uint64_t *patterns = malloc(RANDOM_VALUES * sizeof *patterns);
            assert_non_null(patterns);
            for (size_t i = 0; i < RANDOM_VALUES; i++)
                patterns[i] = random_pattern(&targets[t], &sources[s]);
            check(&targets[t], &sources[s], patterns, RANDOM_VALUES);
            free(patterns);
        }
    }
}

/* Written down by hand: what the reference must give, too. */
static void test_known_values(void **state)
{
    static const struct {
        size_t from, to; /* in sources */
        uint64_t bits, want;
    } known[] = {
        {2, 1, 0x3f808000, 0x3f80},             /* a tie, to even */
        {2, 1, 0x3f818000, 0x3f82},             /* and up */
        {2, 1, 0x3f808001, 0x3f81},             /* just above a tie */
        {2, 1, 0x7f7fffff, 0x7f80},             /* too large */
        {2, 1, 0x00008001, 0x0001},             /* a subnormal */
        {2, 1, 0xff800001, 0x7fc0},             /* a NaN that signals */
        {2, 1, 0x7fffffff, 0x7fc0},             /* a NaN that would carry into the sign */
        {3, 1, 0xfff8000000000000, 0x7fc0},     /* the NaN that processors make */
        {0, 1, 0xfe00, 0x7fc0},                 /* likewise */
        {1, 2, 0xff81, 0xff810000},             /* a NaN that signals still does */
        {1, 3, 0xff81, 0xfff8200000000000},     /* but not as Float64 */
        {1, 0, 0xff81, 0xfe08},                 /* nor as Float16 */
        {2, 1, 0x80000000, 0x8000},             /* -0 */
        {2, 0, 0x477fefff, 0x7bff},             /* 65519.996… is the largest Float16 */
        {2, 0, 0x477ff000, 0x7c00},             /* 65520 is infinite */
        {2, 0, 0x33000000, 0x0000},             /* 2^-25, a tie with 0 */
        {2, 0, 0x33000001, 0x0001},             /* just above it */
        {2, 0, 0x387fffff, 0x0400},             /* up to the least normal one */
        {3, 1, 0x3ff0100000000001, 0x3f81},     /* by way of Float32 it would be 0x3f80 */
        {3, 0, 0x40effdffffffffff, 0x7bff},     /* likewise, infinite */
        {3, 0, 0x3e60000000000001, 0x0001},     /* likewise, 0 */
        {3, 2, 0x47effffff0000000, 0x7f800000}, /* too large */
        {3, 2, 0x0000000000000001, 0x00000000}, /* too small */
        {3, 2, 0x36a0000000000000, 0x00000001}, /* the least Float32 */
        {2, 3, 0x00000001, 0x36a0000000000000}, /* and back */
        {0, 2, 0x0001, 0x33800000},             /* the least Float16 */
        {0, 2, 0xfc01, 0xffc02000},             /* a NaN that signals */
        {1, 0, 0x7f7f, 0x7c00},                 /* too large */
        {0, 1, 0x7bff, 0x4780},                 /* 65504 has more bits than BFloat16 */
        {4, 2, 0x7e, 0x43e00000},               /* 448, the largest Float8E4M3FN */
        {4, 2, 0xff, 0xfff00000},               /* its NaN */
        {5, 0, 0x7c, 0x7c00},                   /* Float8E5M2 is the upper half of Float16 */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        const struct format *to = &sources[known[i].to], *from = &sources[known[i].from];
        assert_int_equal(expected(to, from, known[i].bits), known[i].want);
        uint64_t patterns[40];
        for (size_t k = 0; k < ARRAY_SIZE(patterns); k++)
            patterns[k] = known[i].bits;
        check(to, from, patterns, ARRAY_SIZE(patterns));
    }
}

/* Both roundings, one after the other. */
static void test_by_float32(void **state)
{
    static const uint64_t twice[] = {0x3ff0100000000001, 0x40effdffffffffff, 0x3e60000000000001,
                                     0xfff0000000000001};
    static const uint16_t known[2][ARRAY_SIZE(twice)] = {{0x3c04, 0x7c00, 0x0000, 0xfe00},
                                                         {0x3f80, 0x4780, 0x3300, 0x7fc0}};
    const struct format *f32 = &sources[2], *f64 = &sources[3];
    enum { MOST = 1000 };
    unsigned char src[MOST * 8], dst[MOST * 2];

    (void)state;
    for (size_t t = 0; t < 2; t++) {
        for (size_t round = 0; round < 30; round++) {
            const size_t n = 1 + random_below(&rng, MOST);
            uint64_t patterns[MOST];
            for (size_t i = 0; i < n; i++) {
                patterns[i] = i < ARRAY_SIZE(twice) ? twice[i] : random_pattern(&targets[t], f64);
                store(src + 8 * i, f64, patterns[i]);
            }
            rfs_cast_by_float32(targets[t].dtype, dst, src, n);
            for (size_t i = 0; i < n; i++) {
                const uint64_t got = load(dst + 2 * i, &targets[t]);
                assert_int_equal(got, expected(&targets[t], f32, expected(f32, f64, patterns[i])));
                assert_true(i >= ARRAY_SIZE(twice) || got == known[t][i]);
            }
        }
    }
}

/* Every count up to some, so that each way of ending a loop is taken. */
static void test_counts(void **state)
{
    uint64_t patterns[130];
    (void)state;
    for (size_t s = 0; s < ARRAY_SIZE(sources); s++) {
        for (size_t t = 0; t < TARGETS; t++) {
            for (size_t n = 0; n < ARRAY_SIZE(patterns); n++) {
                for (size_t i = 0; i < n; i++)
                    patterns[i] = random_next(&rng) >> (64 - width(&sources[s]));
                check(&targets[t], &sources[s], patterns, n);
            }
        }
    }
}

/* A host process may round elsewhere, and on x86 have subnormals taken for 0. */
static void test_any_environment(void **state)
{
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    const size_t n = 64;
    (void)state;
    for (size_t m = 0; m < ARRAY_SIZE(modes); m++) {
        for (size_t s = 0; s < TARGETS; s++) {
            for (size_t t = 0; t < TARGETS; t++) {
                const struct format *from = &sources[s], *to = &targets[t];
                unsigned char src[64 * 8], dst[2][64 * 8];
                for (size_t i = 0; i < n; i++)
                    store(src + i * width(from) / 8, from, random_pattern(to, from));
                rfs_cast(to->dtype, dst[0], from->dtype, src, n);
                for (size_t w = 0; w < ARRAY_SIZE(ways); w++) {
                    assert_int_equal(fesetround(modes[m]), 0);
#if defined(__x86_64__)
                    const unsigned saved = __builtin_ia32_stmxcsr();
                    __builtin_ia32_ldmxcsr(saved | 0x8040);
#elif defined(__aarch64__) /* flushes subnormals of all types; one NaN; other halves */
                    uint64_t saved;
                    __asm__ __volatile__("mrs %0, fpcr" : "=r"(saved));
                    __asm__ __volatile__("msr fpcr, %0" : : "r"(saved | UINT64_C(0x7080000)));
#endif
                    ways[w](to->dtype, dst[1], from->dtype, src, n);
#if defined(__x86_64__)
                    __builtin_ia32_ldmxcsr(saved);
#elif defined(__aarch64__)
                    uint64_t after;
                    __asm__ __volatile__("mrs %0, fpcr" : "=r"(after));
                    assert_int_equal(after, saved | UINT64_C(0x7080000));
                    __asm__ __volatile__("msr fpcr, %0" : : "r"(saved));
#endif
                    fesetround(FE_TONEAREST);
                    assert_memory_equal(dst[0], dst[1], n * width(to) / 8);
                }
            }
        }
    }
}

static void test_which_types(void **state)
{
    (void)state;
    for (unsigned d = 0; d < RFS_DTYPE_COUNT; d++) {
        bool source = false, target = false;
        for (size_t s = 0; s < ARRAY_SIZE(sources); s++) {
            source = source || sources[s].dtype == d;
            target = target || (s < TARGETS && sources[s].dtype == d);
        }
        assert_int_equal(rfs_dtype_is_float(d), source);
        assert_int_equal(rfs_dtype_is_float_target(d), target);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_types),
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_every_pattern_of_16_bits_and_fewer),
        cmocka_unit_test(test_ties_and_their_neighbours),
        cmocka_unit_test(test_random_values),
        cmocka_unit_test(test_by_float32),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_any_environment),
    };
    rng = random_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
