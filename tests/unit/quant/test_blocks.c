/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks with the scales in them, number by number as ggml-quants.c draws them, in double; any
 * range of the numbers of a file of blocks is that of all.
 */
#include "base/cleanup.h"
#include "quant/expand.h"
#include "quant/quant.h"
#include "tests/support/tree.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))
#define ROWS 3
#define BLOCKS 5 /* in a row */
#define BYTES ((size_t)ROWS * BLOCKS * RFS_QUANT_BLOCK_BYTES)

static const enum rfs_dtype blocks[] = {RFS_Q4_0, RFS_Q8_0, RFS_Q4_K, RFS_Q5_K, RFS_Q6_K};

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return *seed >> 16;
}

static double half(const unsigned char *at)
{
    const unsigned bits = at[0] | (unsigned)at[1] << 8;
    const int exponent = (int)(bits >> 10 & 31);
    const double of = bits & 1023;
    const double value = exponent == 31  ? of > 0 ? NAN : INFINITY
                         : exponent == 0 ? ldexp(of, -24)
                                         : ldexp(1024 + of, exponent - 25);

    return copysign(value, bits & 0x8000 ? -1 : 1);
}

/* Returns the 6 bits of s (0) or m (1) of 32 numbers, the J-th of a block. */
static int six_bits(const unsigned char *packed, unsigned j, unsigned which)
{
    if (j < 4)
        return packed[j + 4 * which] & 63;
    return (packed[8 + j - 4] >> 4 * which & 15) + (packed[j - 4 + 4 * which] >> 6) * 16;
}

/* Returns number I of a block; *MIN is what is subtracted from it, or 0. */
static double number(enum rfs_dtype dtype, const unsigned char *b, unsigned i, double *min)
{
    const unsigned j = i / 32;
    const unsigned k = i % 32;
    int code;

    *min = 0;
    switch ((int)dtype) {
    case RFS_Q4_0:
        code = i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4;
        return half(b) * (code - 8);
    case RFS_Q8_0:
        return half(b) * (signed char)b[2 + i];
    case RFS_Q4_K:
        code = b[16 + j / 2 * 32 + k] >> (j % 2 ? 4 : 0) & 15;
        *min = half(b + 2) * six_bits(b + 4, j, 1);
        return half(b) * six_bits(b + 4, j, 0) * code;
    case RFS_Q5_K:
        code = (b[48 + j / 2 * 32 + k] >> (j % 2 ? 4 : 0) & 15) + (b[16 + k] >> j & 1) * 16;
        *min = half(b + 2) * six_bits(b + 4, j, 1);
        return half(b) * six_bits(b + 4, j, 0) * code;
    default: { /* Q6_K: 128 numbers share 64 bytes, in which the first half has the low halves */
        const unsigned at = i % 128;
        code = (b[i / 128 * 64 + at % 64] >> (at < 64 ? 0 : 4) & 15) +
               (b[128 + i / 128 * 32 + at % 32] >> at / 32 * 2 & 3) * 16;
        return half(b + 208) * (signed char)b[192 + i / 16] * (code - 32);
    }
    }
}

/* Fills N bytes; scales are finite mostly. */
static void fill(unsigned char *bytes, size_t n, uint32_t *seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)next(seed);
}

static struct rfs_quant quant_of(enum rfs_dtype dtype, enum rfs_dtype to)
{
    struct rfs_quant quant;

    memset(&quant, 0, sizeof quant);
    quant.block = (uint8_t)dtype;
    quant.block_rows = 1;
    quant.block_cols = rfs_dtype_packed(dtype);
    quant.round = RFS_FLOAT32;
    quant.to = (uint8_t)to;
    return quant;
}

static void test_numbers(void **state)
{
    uint32_t seed = 1;

    (void)state;
    for (size_t t = 0; t < ARRAY_SIZE(blocks); t++)
        for (unsigned round = 0; round < 400; round++) {
            const enum rfs_dtype dtype = blocks[t];
            const struct rfs_quant wide = quant_of(dtype, RFS_FLOAT32);
            const struct rfs_quant narrow = quant_of(dtype, RFS_BFLOAT16);
            unsigned char block[RFS_QUANT_BLOCK_BYTES];
            float got[RFS_QUANT_BLOCK_MOST];
            uint16_t rounded[RFS_QUANT_BLOCK_MOST];
            fill(block, sizeof block, &seed);
            rfs_quant_expand_block(&wide, (unsigned char *)got, block);
            rfs_quant_expand_block(&narrow, (unsigned char *)rounded, block);
            for (unsigned i = 0; i < rfs_dtype_packed(dtype); i++) {
                double min;
                const double product = number(dtype, block, i, &min);
                const float want = (float)(product - min); /* both are exact in double */
                uint32_t bits;
                memcpy(&bits, &got[i], sizeof bits);
                if (isnan(want)) {
                    assert_int_equal(bits, 0x7fc00000);
                    assert_int_equal(rounded[i], 0x7fc0);
                    continue;
                }
                assert_true(got[i] == want && signbit(got[i]) == signbit(want));
                /* The nearest, and the even one of two. */
                assert_int_equal(rounded[i], (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
            }
        }
}

/* A file of blocks with a few bytes before them. */
struct world {
    char *root;
    struct rfs_files *files;
    struct rfs_reading reading;
    unsigned char bytes[7 + BYTES];
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    uint32_t seed = 2;
    char path[4096];

    w->root = tree_new();
    fill(w->bytes, sizeof w->bytes, &seed);
    tree_write(w->root, "blocks", w->bytes, sizeof w->bytes);
    snprintf(path, sizeof path, "%s/blocks", w->root);
    w->files = rfs_files_new(NULL);
    assert_int_equal(rfs_files_add(w->files, path), 0);
    assert_int_equal(rfs_reading_begin(w->files, 0, &w->reading), 0);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    assert_int_equal(rfs_reading_end(&w->reading), 0);
    rfs_files_free(w->files);
    tree_remove(w->root);
    free(w);
    return 0;
}

static void test_ranges(void **state)
{
    struct world *w = *state;
    uint32_t seed = 3;

    for (size_t t = 0; t < 2 * ARRAY_SIZE(blocks); t++) {
        const enum rfs_dtype dtype = blocks[t / 2];
        struct rfs_quant quant = quant_of(dtype, t % 2 ? RFS_FLOAT32 : RFS_BFLOAT16);
        const size_t item = rfs_dtype_bytes((enum rfs_dtype)quant.to);
        const size_t stored = rfs_dtype_bytes(dtype);
        const size_t size = quant.block_cols * item;
        const size_t all = ROWS * BLOCKS * size;
        RFS_FREE unsigned char *want = malloc(all);
        RFS_FREE unsigned char *got = malloc(all);
        RFS_CLEANUP(rfs_quant_scales_end) struct rfs_quant_scales scales = {0};
        struct rfs_quant_range sides[RFS_QUANT_SIDES];
        quant.rows = ROWS;
        quant.cols = BLOCKS * quant.block_cols;
        for (size_t i = 0; i < ROWS * BLOCKS; i++)
            rfs_quant_expand_block(&quant, want + i * size, w->bytes + 7 + i * stored);
        for (unsigned round = 0; round < 200; round++) {
            const size_t from = round == 0 ? 0 : next(&seed) % all;
            const size_t n = round == 0 ? all : 1 + next(&seed) % (all - from);
            const uint64_t last = from + n - 1;
            uint64_t begin, end;
            assert_int_equal(rfs_quant_pread(&w->reading, &quant, 7, &scales, got, n, from), 0);
            assert_memory_equal(got, want + from, n);
            assert_int_equal(rfs_quant_sides(&quant, n, from, sides), 0);
            assert_int_equal(rfs_quant_code_at(&quant, from), from / size * stored);
            rfs_quant_codes(&quant, n, from, &begin, &end);
            assert_int_equal(begin, from / size * stored);
            assert_int_equal(end, (last / size + 1) * stored);
        }
        assert_int_equal(rfs_quant_code_bytes(&quant, all), ROWS * BLOCKS * stored);
        assert_int_equal(rfs_quant_code_bytes(&quant, item), stored);
        /* A file that ends too early. */
        assert_true(
            rfs_quant_pread(&w->reading, &quant, sizeof w->bytes - 1, &scales, got, size, 0) < 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test_setup_teardown(test_ranges, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
