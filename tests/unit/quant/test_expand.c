/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codes become numbers as a naive model has them: values by ldexp, products in double, where they
 * are exact, and rounding by rint on a multiple of the target's last place.
 */
#include "quant/expand.h"
#include "tests/support/tree.h"
#include "tests/support/valgrind.h"

#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))
#define MOST 300
#define ROW_MOST 600

/*
 * Returns VALUE rounded to FRACTION bits behind the first, with LEAST the exponent of subnormals.
 */
static double nearest(double value, int fraction, int least, double largest)
{
    int exponent;

    if (value == 0 || !isfinite(value))
        return value;
    frexp(value, &exponent);
    const double place = ldexp(1, (exponent - 1 > least ? exponent - 1 : least) - fraction);
    const double rounded = rint(value / place) * place;
    return fabs(rounded) > largest ? copysign(INFINITY, rounded) : copysign(rounded, value);
}

static double round_to(enum rfs_dtype dtype, double value)
{
    return dtype == RFS_FLOAT16    ? nearest(value, 10, -14, 65504)
           : dtype == RFS_BFLOAT16 ? nearest(value, 7, -126, ldexp(255, 120))
                                   : nearest(value, 23, -126, ldexp(16777215, 104));
}

static double decode(enum rfs_quant_code kind, unsigned code)
{
    static const double halves[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const unsigned exponent = code >> 3 & 15;
    const double half = copysign(halves[code & 7], code & 8 ? -1 : 1);

    switch (kind) {
    case RFS_QUANT_E4M3:
        if ((code & 127) == 127)
            return NAN;
        return copysign(exponent ? ldexp(8 + (code & 7), (int)exponent - 10) : ldexp(code & 7, -9),
                        code & 128 ? -1 : 1);
    case RFS_QUANT_INT8:
        return code < 128 ? (int)code : (int)code - 256;
    case RFS_QUANT_UINT8:
        return (int)code - 128;
    case RFS_QUANT_PLAIN8:
    case RFS_QUANT_PLAIN4:
        return code;
    case RFS_QUANT_UINT4:
        return (int)code - 8;
    case RFS_QUANT_E2M1:
        return half;
    case RFS_QUANT_E2M1_0:
        return code == 8 ? 0 : half;
    case RFS_QUANT_E2M1_2:
        return 2 * half;
    }
    return 0;
}

/* Returns the number of a code: its product, or its product and a sum. */
static double number_of(const struct rfs_quant *quant, unsigned code, double scale, double zero)
{
    const enum rfs_dtype round = (enum rfs_dtype)quant->round;
    const enum rfs_dtype first = quant->zero == RFS_QUANT_Z_PLUS ? round : RFS_FLOAT32;
    const bool affine = rfs_quant_is_affine(quant);
    const double value = decode((enum rfs_quant_code)quant->code, code) - (affine ? 0 : zero);
    double number = round_to(first, round_to(RFS_FLOAT32, value * scale));

    if (affine)
        number = round_to(RFS_FLOAT32, number + zero);
    return round_to((enum rfs_dtype)quant->to, round_to(round, number));
}

static double get(const unsigned char *at, enum rfs_dtype dtype)
{
    uint32_t bits = 0;
    float value;

    if (dtype == RFS_FLOAT32)
        memcpy(&bits, at, 4);
    else
        memcpy((unsigned char *)&bits + 2, at, 2);
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void expect(const struct rfs_quant *quant, const unsigned char *got, double want)
{
    const double have = get(got, (enum rfs_dtype)quant->to);
    uint16_t bits;

    memcpy(&bits, got, sizeof bits);
    if (isnan(want)) {
        assert_true(isnan(have));
        uint32_t wide;
        memcpy(&wide, got, quant->to == RFS_BFLOAT16 ? sizeof bits : sizeof wide);
        assert_int_equal(quant->to == RFS_BFLOAT16 ? (uint32_t)bits << 16 : wide, 0x7fc00000);
        return;
    }
    assert_true(have == want && signbit(have) == signbit(want));
}

typedef void expand_fn(const struct rfs_quant *, unsigned char *, const unsigned char *, uint64_t,
                       size_t, float, float);

/* Expands N codes from AT on, in place behind where they are read, and compares all of them. */
static void compare(const struct rfs_quant *quant, expand_fn *expand, uint64_t at, size_t n,
                    float scale, float zero)
{
    unsigned char room[MOST * 4 + 1];
    unsigned char before[MOST] = {0};
    const size_t item = rfs_dtype_bytes((enum rfs_dtype)quant->to);
    const bool halves = rfs_quant_code_bits(quant) == 4;
    const size_t bytes = halves ? (size_t)(at % 2 + n + 1) / 2 : n;
    unsigned char *codes = room + n * item - bytes;

    for (size_t i = 0; i < bytes; i++) /* all codes, and both halves of each in all pairs */
        before[i] = (unsigned char)(i + (halves ? at / 2 : at));
    memcpy(codes, before, bytes);
    expand(quant, room, codes, halves ? at % 2 : 0, n, scale, zero);
    for (size_t i = 0; i < n; i++) {
        const size_t k = i + (halves ? at % 2 : 0);
        const unsigned code = halves ? (unsigned)before[k / 2] >> (k % 2 ? 4 : 0) & 15 : before[k];
        expect(quant, room + i * item, number_of(quant, code, (double)scale, (double)zero));
    }
}

/* Compares all codes with all scales that are apart from others. */
static void compare_all(const struct rfs_quant *quant, float zero)
{
    const float scales[] = {0,       -0.0F,    1,         -0.5F,    INFINITY, -INFINITY,  NAN,
                            1e-42F,  1e-45F,   0x1p-127F, 0x1p127F, 3.3e38F,  -7e-41F,    0.37F,
                            1.3229F, 0x1p-20F, 65504,     6e-8F,    2.9e-8F,  0x1.55p-9F, 448};

    for (size_t i = 0; i < ARRAY_SIZE(scales); i++) {
        compare(quant, rfs_quant_expand, 0, 256, scales[i], zero);
        compare(quant, rfs_quant_expand_portably, 0, 256, scales[i], zero);
        for (size_t n = 0; n < 40; n += 3)
            compare(quant, rfs_quant_expand, n * 5 % 64, n, scales[i], zero);
    }
}

static void test_all_codes(void **state)
{
    static const enum rfs_dtype rounds[] = {RFS_FLOAT32, RFS_BFLOAT16, RFS_FLOAT16};

    (void)state;
    for (unsigned code = RFS_QUANT_E4M3; code <= RFS_QUANT_E2M1_2; code++)
        for (unsigned r = 0; r < ARRAY_SIZE(rounds); r++)
            for (unsigned to = 0; to < 2; to++) {
                const struct rfs_quant quant = {.code = (uint8_t)code,
                                                .round = (uint8_t)rounds[r],
                                                .to = to ? RFS_FLOAT32 : RFS_BFLOAT16};
                compare_all(&quant, 0);
                if (code >= RFS_QUANT_INT8 && code <= RFS_QUANT_UINT4)
                    compare_all(&quant, code == RFS_QUANT_UINT4 ? -8 : 127);
            }
}

/* All codes of both sizes, plus a number, whichever type products and sums are rounded to. */
static void test_sums(void **state)
{
    static const enum rfs_dtype rounds[] = {RFS_FLOAT32, RFS_BFLOAT16, RFS_FLOAT16};
    static const float plus[] = {0, -0.0F, -3.25F, 0x1.03p-9F, 65504, -INFINITY, 1e-42F};

    (void)state;
    for (unsigned i = 0; i < 2 * ARRAY_SIZE(rounds) * 4; i++) {
        const struct rfs_quant quant = {.code = i % 2 ? RFS_QUANT_PLAIN4 : RFS_QUANT_PLAIN8,
                                        .zero =
                                            i / 2 % 2 ? RFS_QUANT_Z_PLUS : RFS_QUANT_Z_PLUS_WIDE,
                                        .to = i / 4 % 2 ? RFS_FLOAT32 : RFS_BFLOAT16,
                                        .round = (uint8_t)rounds[i / 8]};
        for (unsigned k = 0; k < ARRAY_SIZE(plus); k++)
            compare_all(&quant, plus[k]);
    }
}

/* Each code has a scale and a zero point of its own. */
static void test_columns(void **state)
{
    static const enum rfs_dtype rounds[] = {RFS_FLOAT32, RFS_BFLOAT16, RFS_FLOAT16};
    static const float odd[] = {INFINITY, NAN, -0.0F, 1e-42F, 65504, 6e-8F, 0x1.55p-9F};
    unsigned char codes[256], room[256 * 4];
    float scales[256], zeros[256];
    uint64_t random = test_seed();

    (void)state;
    for (unsigned i = 0; i < 60; i++) {
        const struct rfs_quant quant = {.code = RFS_QUANT_PLAIN8,
                                        .zero = RFS_QUANT_Z_WORDS,
                                        .to = i % 2 ? RFS_FLOAT32 : RFS_BFLOAT16,
                                        .round = (uint8_t)rounds[i % 3]};
        const size_t n = i < 40 ? i : 256 - i;
        const size_t item = rfs_dtype_bytes((enum rfs_dtype)quant.to);
        for (size_t k = 0; k < n; k++) {
            codes[k] = (unsigned char)test_below(&random, 256);
            zeros[k] = (float)test_below(&random, 257);
            scales[k] = test_below(&random, 3) ? (float)test_below(&random, 9000) / 777
                                               : odd[test_below(&random, ARRAY_SIZE(odd))];
        }
        rfs_quant_expand_columns(&quant, room, codes, n, scales, zeros);
        for (size_t k = 0; k < n; k++)
            expect(&quant, room + k * item,
                   number_of(&quant, codes[k], (double)scales[k], (double)zeros[k]));
    }
}

/* Returns a scale: those at the edges of what tables have, and any others. */
static float any_scale(uint64_t *random)
{
    static const float edges[] = {0x1p-100F,  0x1.fffffep-101F, 0x1p100F, 0x1.000002p100F,
                                  -0x1p-100F, -0x1.8p100F,      INFINITY, 0};
    const uint32_t kind = test_below(random, 4 * ARRAY_SIZE(edges));
    const double fraction = 1 + (double)test_below(random, 1 << 23) * 0x1p-23;

    if (kind < ARRAY_SIZE(edges))
        return edges[kind];
    return (float)ldexp(kind % 2 ? fraction : -fraction, (int)test_below(random, 40) - 30);
}

/* Expands a row of blocks in place, and compares all numbers. */
static void compare_row(const struct rfs_quant *quant, uint64_t *random)
{
    unsigned char room[ROW_MOST * 4 + 1];
    unsigned char before[ROW_MOST + 1];
    float scales[ROW_MOST], zeros[ROW_MOST];
    const size_t item = rfs_dtype_bytes((enum rfs_dtype)quant->to);
    const bool halves = rfs_quant_code_bits(quant) == 4;
    const bool finite = test_below(random, 4) > 0; /* no code is a NaN */
    const bool has_zeros = quant->code >= RFS_QUANT_INT8 && quant->code <= RFS_QUANT_UINT4 &&
                           test_below(random, 2) > 0;
    struct rfs_quant_row row = {.at = halves ? test_below(random, 2) : 0,
                                .n = test_below(random, ROW_MOST) + 1,
                                .first = test_below(random, (uint32_t)quant->block_cols) + 1,
                                .scales = scales,
                                .zeros = has_zeros ? zeros : NULL};
    const size_t bytes = halves ? (size_t)(row.at + row.n + 1) / 2 : row.n;

    if (row.first > row.n)
        row.first = row.n;
    for (size_t i = 0; i < ROW_MOST; i++) {
        scales[i] = any_scale(random);
        zeros[i] = (float)test_below(random, 16) - 8;
    }
    for (size_t i = 0; i < bytes; i++) {
        before[i] = (unsigned char)test_below(random, 256);
        before[i] = (unsigned char)(before[i] - (finite && (before[i] & 127) == 127));
    }
    row.codes = room + row.n * item - bytes;
    memcpy(room + row.n * item - bytes, before, bytes);
    rfs_quant_expand_row(quant, room, &row);
    for (size_t i = 0; i < row.n; i++) {
        const size_t k = i < row.first ? 0 : 1 + (i - row.first) / quant->block_cols;
        const size_t at = i + row.at;
        const unsigned code =
            halves ? (unsigned)before[at / 2] >> (at % 2 ? 4 : 0) & 15 : before[i];
        const double zero = has_zeros ? (double)zeros[k] : 0;
        expect(quant, room + i * item, number_of(quant, code, (double)scales[k], zero));
    }
}

/* Returns a kind of zero points that a kind of codes may have, by a number. */
static uint8_t zero_of(unsigned code, unsigned number)
{
    const bool plain = code == RFS_QUANT_PLAIN8 || code == RFS_QUANT_PLAIN4;

    return !plain ? RFS_QUANT_Z_NONE : number % 2 ? RFS_QUANT_Z_PLUS : RFS_QUANT_Z_PLUS_WIDE;
}

static void test_rows(void **state)
{
    static const enum rfs_dtype rounds[] = {RFS_FLOAT32, RFS_BFLOAT16, RFS_FLOAT16};
    static const uint64_t blocks[] = {16, 32, 40, 128};
    uint64_t random = test_seed();

    (void)state;
    for (unsigned code = RFS_QUANT_E4M3; code <= RFS_QUANT_E2M1_2; code++)
        for (unsigned r = 0; r < ARRAY_SIZE(rounds); r++)
            for (unsigned b = 0; b < ARRAY_SIZE(blocks); b++)
                for (unsigned i = 0; i < 16; i++) {
                    const struct rfs_quant quant = {.block_cols = blocks[b],
                                                    .code = (uint8_t)code,
                                                    .round = (uint8_t)rounds[r],
                                                    .zero = zero_of(code, i),
                                                    .to = i % 4 ? RFS_BFLOAT16 : RFS_FLOAT32};
                    compare_row(&quant, &random);
                }
}

static void test_scales(void **state)
{
    struct rfs_quant quant = {.whole = 3};
    unsigned char bytes[4] = {0};

    (void)state;
    for (unsigned b = 0; b < 256; b++) {
        bytes[0] = (unsigned char)b;
        quant.scale = RFS_QUANT_S_E8M0;
        const float e8m0 = rfs_quant_scale_value(&quant, bytes);
        assert_true(b == 255 ? isnan(e8m0) : (double)e8m0 == ldexp(1, (int)b - 127));
        quant.scale = RFS_QUANT_S_EXPONENT;
        const float exponent = rfs_quant_scale_value(&quant, bytes);
        assert_true(b == 255 ? isinf(exponent) : (double)exponent == ldexp(1, (int)b - 127));
        quant.scale = RFS_QUANT_S_HALF;
        assert_true((double)rfs_quant_scale_value(&quant, bytes) == ldexp(1, (int)b - 128));
        quant.scale = RFS_QUANT_S_E4M3;
        const double code = decode(RFS_QUANT_E4M3, b);
        const float divided = rfs_quant_scale_value(&quant, bytes);
        assert_true(isnan(code) ? isnan(divided) : divided == (float)code / 3);
        quant.scale = RFS_QUANT_S_E4M3_BY;
        const float multiplied = rfs_quant_scale_value(&quant, bytes);
        assert_true(isnan(code) ? isnan(multiplied) : multiplied == (float)code * 3);
    }
    quant.scale = RFS_QUANT_S_F16;
    for (unsigned b = 0; b < 65536; b++) {
        const uint16_t half = (uint16_t)b;
        const unsigned e = b >> 10 & 31;
        const double value = e == 31 ? (b & 1023 ? NAN : INFINITY)
                             : e     ? ldexp(1024 + (b & 1023), (int)e - 25)
                                     : ldexp(b & 1023, -24);
        memcpy(bytes, &half, sizeof half);
        const double have = (double)rfs_quant_scale_value(&quant, bytes);
        assert_true(isnan(value) ? isnan(have) : have == (b >> 15 ? -value : value));
    }
}

/* Subnormals stay, and sums are rounded to the nearest, whatever the thread has set. */
static void test_any_environment(void **state)
{
    const struct rfs_quant quant = {
        .code = RFS_QUANT_E4M3, .round = RFS_FLOAT16, .to = RFS_FLOAT32};
    const unsigned char one = 0x38;
    float number;

    (void)state;
    if (is_under_valgrind()) /* it computes in one environment alone */
        skip();
    assert_int_equal(fesetround(FE_UPWARD), 0);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
    const uint64_t before = rfs_quant_begin_math();
    rfs_quant_expand(&quant, (unsigned char *)&number, &one, 0, 1, 0x1.1p-20F, 0);
    rfs_quant_end_math(before);
    assert_int_equal(fegetround(), FE_UPWARD);
#if defined(__x86_64__)
    assert_int_equal(__builtin_ia32_stmxcsr() & 0x8040, 0x8040);
#endif
    fesetenv(FE_DFL_ENV);
    assert_true((double)number == 0x1.1p-20);
    const uint64_t again = rfs_quant_begin_math();
    rfs_quant_expand(&quant, (unsigned char *)&number, &one, 0, 1, 0x1.01p-20F, 0);
    rfs_quant_end_math(again);
    assert_true((double)number == 0x1p-20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_codes), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_columns),   cmocka_unit_test(test_rows),
        cmocka_unit_test(test_scales),    cmocka_unit_test(test_any_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
