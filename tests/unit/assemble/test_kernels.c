/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels against a loop over bytes, in buffers of exactly the size that they may touch. */
#include "assemble/kernels.h"

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
    rfs_copy_runs(dst, dst_stride, src, src_stride, run, count);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joins_and_splits),
        cmocka_unit_test(test_random_strides),
    };
    rng = random_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
