/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels against loops over bytes, in buffers of exactly the size that they may touch. */
#include "assemble/kernels.h"
#include "assemble/transpose.h"

#include "support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct random rng;

/* At OFFSET from an aligned address, with nothing behind that may be touched. */
static unsigned char *exactly(size_t offset, size_t n, unsigned char **block)
{
    *block = malloc(offset + n);
    assert_non_null(*block);
    for (size_t i = 0; i < offset + n; i++)
        (*block)[i] = (unsigned char)random_next(&rng);
    return *block + offset;
}

static void check(size_t run, size_t dst_stride, size_t src_stride, size_t count)
{
    unsigned char *blocks[3];
    const size_t dst_bytes = count ? (count - 1) * dst_stride + run : 0;
    const size_t src_bytes = count ? (count - 1) * src_stride + run : 0;
    unsigned char *dst = exactly(random_below(&rng, 17), dst_bytes, &blocks[0]);
    unsigned char *src = exactly(random_below(&rng, 17), src_bytes, &blocks[1]);
    unsigned char *expected = exactly(0, dst_bytes, &blocks[2]);
    memcpy(expected, dst, dst_bytes);
    for (size_t k = 0; k < count; k++) {
        for (size_t b = 0; b < run; b++)
            expected[k * dst_stride + b] = src[k * src_stride + b];
    }
    rfs_kernels_copy(dst, dst_stride, src, src_stride, run, count);
    if (memcmp(dst, expected, dst_bytes) != 0)
        fail_msg("run %zu, strides %zu and %zu, count %zu", run, dst_stride, src_stride, count);
    for (int i = 0; i < 3; i++)
        free(blocks[i]);
}

static void test_joins_and_splits(void **state)
{
    static const size_t counts[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 64, 100};
    (void)state;
    for (size_t run = 1; run <= 140; run++) {
        for (size_t ways = 1; ways <= 9; ways++) {
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
                check(run, run * ways, run, counts[i]);
                check(run, run, run * ways, counts[i]);
            }
        }
    }
}

static void test_random_strides(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const size_t run = random_below(&rng, 8) ? random_in(&rng, 1, 20) : random_in(&rng, 1, 900);
        const size_t dst_gap = random_below(&rng, 3) ? random_below(&rng, 20) : 0;
        const size_t src_gap = random_below(&rng, 3) ? random_below(&rng, 20) : 0;
        check(run, run + dst_gap, run + src_gap, random_below(&rng, 120));
    }
}

/* A matrix with gaps between its rows on both sides, by FAR's way of writing; gaps stay. */
static void check_transpose(size_t item, size_t rows, size_t cols, size_t dst_at, size_t dst_stride,
                            size_t src_stride, bool far)
{
    unsigned char *blocks[3];
    const size_t dst_bytes = (cols - 1) * dst_stride + rows * item;
    const size_t src_bytes = (rows - 1) * src_stride + cols * item;
    unsigned char *src = exactly(random_below(&rng, 17), src_bytes, &blocks[0]);
    unsigned char *expected = exactly(0, dst_bytes, &blocks[1]);
    blocks[2] = aligned_alloc(RFS_TRANSPOSE_LINE, (dst_at + dst_bytes + 127) / 64 * 64);
    assert_non_null(blocks[2]);
    unsigned char *dst = blocks[2] + dst_at;
    memcpy(dst, expected, dst_bytes);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            memcpy(expected + c * dst_stride + r * item, src + r * src_stride + c * item, item);
    (far ? rfs_transpose_far : rfs_transpose)(dst, dst_stride, src, src_stride, item, rows, cols);
    if (memcmp(dst, expected, dst_bytes) != 0)
        fail_msg("item %zu, %zu x %zu, strides %zu and %zu, at %zu%s", item, rows, cols, dst_stride,
                 src_stride, dst_at, far ? ", far" : "");
    for (int i = 0; i < 3; i++)
        free(blocks[i]);
}

static void test_transpose(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const size_t item = (size_t)1 << random_below(&rng, 5);
        const size_t rows = random_in(&rng, 1, random_below(&rng, 4) ? 70 : 300);
        const size_t cols = random_in(&rng, 1, random_below(&rng, 4) ? 70 : 300);
        const size_t gap = random_below(&rng, 2) ? item * random_below(&rng, 20) : 0;
        const bool lines = random_below(&rng, 2); /* the strides of a far destination */
        const size_t dst_stride =
            lines ? (rows * item + gap + 63) / 64 * 64 : rows * item + item * random_below(&rng, 9);
        assert_true(rfs_transpose_knows(item));
        check_transpose(item, rows, cols, random_below(&rng, 3) * item, dst_stride,
                        cols * item + gap, random_below(&rng, 3));
    }
    assert_false(rfs_transpose_knows(0) || rfs_transpose_knows(3) || rfs_transpose_knows(32));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joins_and_splits),
        cmocka_unit_test(test_random_strides),
        cmocka_unit_test(test_transpose),
    };
    rng = random_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
