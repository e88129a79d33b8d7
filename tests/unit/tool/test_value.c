/* SPDX-License-Identifier: Apache-2.0 */
/* The content function against constants computed by scripts/check-example's scalar formula. */
#include "tool/example/example.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void keys_are_those_of_the_formula(void **state)
{
    static const struct {
        uint64_t seed;
        const char *name;
        uint64_t key;
    } known[] = {
        {1, "layer1.weight", 0x7376cbd2e6e368b0},
        {0, "", 0xf52a15e9a9b5e89b},
        {UINT64_MAX, "rng_state@3", 0x6d71d80e533ccdcf},
        {7, "größe", 0x2239f3c99767f9eb},
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(rfs_net_value_key(known[i].seed, known[i].name), known[i].key);
}

static void elements_are_those_of_the_formula(void **state)
{
    static const struct {
        enum rfs_dtype dtype;
        uint64_t at;
        uint64_t bits;
    } known[] = {
        /* of seed 1 and "layer1.weight" */
        {RFS_BOOL, 0, 0x0},
        {RFS_BOOL, 1, 0x1},
        {RFS_BOOL, 12345, 0x1},
        {RFS_BOOL, 1000000000007, 0x1},
        {RFS_INT8, 0, 0x20},
        {RFS_INT8, 1, 0x57},
        {RFS_INT8, 12345, 0xc9},
        {RFS_INT8, 1000000000007, 0x7d},
        {RFS_INT32, 0, 0x732c5720},
        {RFS_INT32, 1, 0x4c92ab42},
        {RFS_INT32, 12345, 0xbb3278ee},
        {RFS_INT32, 1000000000007, 0x90471607},
        {RFS_INT64, 0, 0x4c92ab42732c5720},
        {RFS_INT64, 1, 0xa764a4387f6d5e39},
        {RFS_INT64, 12345, 0xf9b2448dbec0774d},
        {RFS_INT64, 1000000000007, 0x6975c238b8b7106b},
        {RFS_FLOAT16, 0, 0x3320},
        {RFS_FLOAT16, 1, 0x332c},
        {RFS_FLOAT16, 12345, 0xa38f},
        {RFS_FLOAT16, 1000000000007, 0xa9ae},
        {RFS_BFLOAT16, 0, 0x3f20},
        {RFS_BFLOAT16, 1, 0x3f2c},
        {RFS_BFLOAT16, 12345, 0xbf0f},
        {RFS_BFLOAT16, 1000000000007, 0xbd2e},
        {RFS_FLOAT32, 0, 0x3f2c5720},
        {RFS_FLOAT32, 1, 0x3c12ab42},
        {RFS_FLOAT32, 12345, 0xbf3278ee},
        {RFS_FLOAT32, 1000000000007, 0xbc471607},
        {RFS_FLOAT64, 0, 0x3f82ab42732c5720},
        {RFS_FLOAT64, 1, 0xbfe4a4387f6d5e39},
        {RFS_FLOAT64, 12345, 0xbfa2448dbec0774d},
        {RFS_FLOAT64, 1000000000007, 0x3fe5c238b8b7106b},
    };
    (void)state;
    const uint64_t key = rfs_net_value_key(1, "layer1.weight");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        unsigned char bytes[8];
        uint64_t bits = 0;
        rfs_net_value_fill(key, known[i].dtype, known[i].at, 1, bytes);
        for (uint32_t k = rfs_net_value_bytes(known[i].dtype); k-- > 0;)
            bits = bits << 8 | bytes[k];
        assert_int_equal(bits, known[i].bits);
    }
}

static void any_cut_of_a_fill_gives_the_same_bytes(void **state)
{
    enum { N = 100 };
    static const enum rfs_dtype dtypes[] = {RFS_INT8, RFS_BFLOAT16, RFS_FLOAT32, RFS_FLOAT64};
    (void)state;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        unsigned char whole[N * 8];
        unsigned char part[N * 8 + 1];
        const uint32_t bytes = rfs_net_value_bytes(dtypes[d]);
        rfs_net_value_fill(42, dtypes[d], 3, N, whole);
        for (size_t begin = 0; begin < N; begin++)
            for (size_t count = 0; begin + count <= N; count += 7) {
                part[count * bytes] = 0xa5;
                rfs_net_value_fill(42, dtypes[d], 3 + begin, count, part);
                assert_memory_equal(part, whole + begin * bytes, count * bytes);
                assert_int_equal(part[count * bytes], 0xa5);
            }
    }
}

static void floats_are_normal_and_below_one(void **state)
{
    enum { N = 20000 };
    (void)state;
    float *small = malloc(N * sizeof *small);
    double *large = malloc(N * sizeof *large);
    assert_non_null(small);
    assert_non_null(large);
    rfs_net_value_fill(5, RFS_FLOAT32, 0, N, small);
    rfs_net_value_fill(5, RFS_FLOAT64, 0, N, large);
    size_t negative = 0;
    for (size_t i = 0; i < N; i++) {
        assert_true(isnormal(small[i]) && fabsf(small[i]) < 1.0F);
        assert_true(isnormal(large[i]) && fabs(large[i]) < 1.0);
        negative += small[i] < 0;
    }
    assert_in_range(negative, N * 2 / 5, N * 3 / 5);
    free(small);
    free(large);
}

static void types_without_the_function_are_said_so(void **state)
{
    (void)state;
    assert_int_equal(rfs_net_value_bytes(RFS_STR), 0);
    assert_int_equal(rfs_net_value_bytes(RFS_COMPLEX64), 0);
    assert_int_equal(rfs_net_value_bytes(RFS_FLOAT16), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_those_of_the_formula),
        cmocka_unit_test(elements_are_those_of_the_formula),
        cmocka_unit_test(any_cut_of_a_fill_gives_the_same_bytes),
        cmocka_unit_test(floats_are_normal_and_below_one),
        cmocka_unit_test(types_without_the_function_are_said_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
