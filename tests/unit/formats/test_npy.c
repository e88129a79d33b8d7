/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors by themselves: headers against those that numpy.save writes, written down here, and what
 * is said of one.
 */
#include "formats/npy/npy.h"
#include "tests/unit/formats/encoded.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIMS(...)                                                                                  \
    (sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)), (uint64_t[])                           \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* The header is DICT with spaces up to SIZE - 1 and a newline; then BYTES of target 0 follow. */
static void expect_npy(struct world *w, const char *dict, size_t size, uint64_t bytes)
{
    unsigned char want[512];
    struct rfs_image *image;

    assert_true(size <= sizeof want);
    memset(want, ' ', size);
    memcpy(want, "\x93NUMPY\x01\x00", 8);
    want[8] = (unsigned char)(size - 10);
    want[9] = (unsigned char)((size - 10) >> 8);
    memcpy(want + 10, dict, strlen(dict));
    want[size - 1] = '\n';
    assert_int_equal(rfs_npy_encode(w->tensors[0].type, 0, &image), 0);
    expect_covered(image);
    expect_literals(image, want, size);
    assert_int_equal(image->bytes, size + bytes);
    assert_int_equal(image->n, bytes > 0 ? 2 : 1);
    if (bytes > 0) {
        assert_int_equal(image->regions[1].target, 0);
        assert_int_equal(image->regions[1].at, 0);
    }
    rfs_image_free(image);
    w->n = 0;
}

/* Sizes are what numpy 1.24 and 2.4 write. */
static void test_headers(void **state)
{
    struct world *w = *state;

    add_tensor(w, "w", RFS_FLOAT32, DIMS(4, 8));
    expect_npy(w, "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 8), }", 128, 128);
    add_tensor(w, "b", RFS_INT64, DIMS(7));
    expect_npy(w, "{'descr': '<i8', 'fortran_order': False, 'shape': (7,), }", 128, 56);
    add_tensor(w, "s", RFS_FLOAT64, 0, NULL);
    expect_npy(w, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }", 128, 8);
    add_tensor(w, "e", RFS_BOOL, DIMS(3, 0, 5));
    expect_npy(w, "{'descr': '|b1', 'fortran_order': False, 'shape': (3, 0, 5), }", 128, 0);
}

/*
 * One space at least behind the room to grow, also where the data would begin at a multiple of 64
 * without.
 */
static void test_padding(void **state)
{
    struct world *w = *state;

    add_tensor(w, "w", RFS_INT8, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 11));
    expect_npy(w,
               "{'descr': '|i1', 'fortran_order': False, "
               "'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 11), }",
               128, 11);
    add_tensor(w, "w", RFS_INT8, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 111));
    expect_npy(w,
               "{'descr': '|i1', 'fortran_order': False, "
               "'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 111), }",
               192, 111);
}

static void test_types(void **state)
{
    static const struct {
        enum rfs_dtype dtype;
        const char *descr;
        const char *really;
    } rows[] = {
        {RFS_BOOL, "|b1", NULL},
        {RFS_INT4, "|i1", "int4"},
        {RFS_INT8, "|i1", NULL},
        {RFS_UINT8, "|u1", NULL},
        {RFS_INT16, "<i2", NULL},
        {RFS_UINT16, "<u2", NULL},
        {RFS_INT32, "<i4", NULL},
        {RFS_UINT32, "<u4", NULL},
        {RFS_INT64, "<i8", NULL},
        {RFS_UINT64, "<u8", NULL},
        {RFS_FLOAT16, "<f2", NULL},
        {RFS_BFLOAT16, "<V2", "bfloat16"},
        {RFS_FLOAT32, "<f4", NULL},
        {RFS_FLOAT64, "<f8", NULL},
        {RFS_COMPLEX64, "<c8", NULL},
        {RFS_COMPLEX128, "<c16", NULL},
        {RFS_FLOAT8_E4M3FN, "<V1", "float8_e4m3fn"},
        {RFS_FLOAT8_E5M2, "<V1", "float8_e5m2"},
        {RFS_FLOAT8_E8M0, "<V1", "float8_e8m0fnu"},
        {RFS_HIFLOAT8, "<V1", "hifloat8"},
        {RFS_FLOAT8_E4M3FNUZ, "<V1", "float8_e4m3fnuz"},
        {RFS_FLOAT8_E5M2FNUZ, "<V1", "float8_e5m2fnuz"},
        {RFS_FLOAT4_E2M1_X2, "<V1", "float4_e2m1fn_x2"},
        {RFS_FLOAT6_E2M3_X4, "<V3", "four float6_e2m3fn"},
        {RFS_FLOAT6_E3M2_X4, "<V3", "four float6_e3m2fn"},
        {RFS_Q4_0, "<V18", "32 numbers of Q4_0"},
        {RFS_Q8_0, "<V34", "32 numbers of Q8_0"},
        {RFS_Q4_K, "<V144", "256 numbers of Q4_K"},
        {RFS_Q5_K, "<V176", "256 numbers of Q5_K"},
        {RFS_Q6_K, "<V210", "256 numbers of Q6_K"},
    };
    unsigned char seen[RFS_DTYPE_COUNT] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct rfs_type type = {.bytes = 6 * rfs_dtype_bytes(rows[i].dtype),
                                      .dims = {2, 3},
                                      .ndim = 2,
                                      .dtype = (uint8_t)rows[i].dtype,
                                      .kind = RFS_TENSOR};
        struct rfs_npy npy;
        rfs_npy_describe(&type, &npy);
        assert_string_equal(npy.descr, rows[i].descr);
        if (rows[i].really)
            assert_string_equal(npy.really, rows[i].really);
        else
            assert_null(npy.really);
        assert_int_equal(npy.ndim, 2);
        assert_int_equal(npy.dims[0], 2);
        assert_int_equal(npy.dims[1], 3);
        /* Elements of numpy's are as wide as those of the file. */
        assert_int_equal(atoi(npy.descr + 2), rfs_dtype_bytes(rows[i].dtype));
        seen[rows[i].dtype] = 1;
    }
    for (int dtype = 0; dtype < RFS_DTYPE_COUNT; dtype++)
        assert_true(seen[dtype] || dtype == RFS_STR);
}

/* A string is a scalar of numpy's, what is none a row of bytes. */
static void test_what_is_no_tensor(void **state)
{
    struct world *w = *state;

    add_target(w, "t", RFS_STRING, RFS_STR, DIMS(0), 20);
    expect_npy(w, "{'descr': '<U5', 'fortran_order': False, 'shape': (), }", 128, 20);
    add_target(w, "t", RFS_STRING, RFS_STR, DIMS(0), 0);
    expect_npy(w, "{'descr': '<U0', 'fortran_order': False, 'shape': (), }", 128, 0);
    add_target(w, "t", RFS_STRING, RFS_STR, DIMS(0), 21);
    expect_npy(w, "{'descr': '|u1', 'fortran_order': False, 'shape': (21,), }", 128, 21);
    add_target(w, "m", RFS_MAP, RFS_FLOAT32, DIMS(2), 4711);
    expect_npy(w, "{'descr': '|u1', 'fortran_order': False, 'shape': (4711,), }", 128, 4711);
}

/* The largest there can be: 16 axes of 20 digits each. */
static void test_long_shape(void **state)
{
    struct rfs_npy npy = {.ndim = RFS_MAX_DIMS, .descr = "<c16"};
    struct rfs_bytes out = {0};

    (void)state;
    for (unsigned i = 0; i < RFS_MAX_DIMS; i++)
        npy.dims[i] = UINT64_MAX;
    assert_true(rfs_npy_header(&npy, &out));
    assert_int_equal(out.n % 64, 0);
    assert_int_equal(out.data[8] | out.data[9] << 8, out.n - 10);
    assert_int_equal(out.data[out.n - 1], '\n');
    assert_int_equal(out.data[out.n - 2], ' ');
    free(out.data);
}

static void expect_about(const struct rfs_about *about, const char *want)
{
    struct rfs_image *image;

    assert_int_equal(rfs_npy_encode_about(about, &image), 0);
    expect_covered(image);
    assert_int_equal(image->bytes, strlen(want));
    expect_literals(image, want, strlen(want));
    rfs_image_free(image);
}

static void test_about(void **state)
{
    const struct rfs_type type = {.bytes = 16, .dims = {2, 4}, .ndim = 2, .dtype = RFS_BFLOAT16};
    const struct rfs_type source = {.bytes = 32, .dims = {2, 4}, .ndim = 2, .dtype = RFS_FLOAT32};
    const char *const files[] = {"/s/a", "/s/\"\xff\n"};
    const struct rfs_about about = {
        .name = "a\"b",
        .source_name = "\xc3\xa9",
        .type = &type,
        .source_type = &source,
        .rank = 3,
        .ndim = 2,
        .whole = (uint64_t[]){8, 4},
        .source_pieces = (uint32_t[]){4, 1},
        .pieces = (uint32_t[]){8, 1},
        .n_boxes = 2,
        .boxes = (uint64_t[]){0, 1, 0, 4, 4, 5, 0, 4},
        .n_ranks = 2,
        .ranks = (uint32_t[]){0, 2},
        .n_files = 2,
        .files = files,
    };

    (void)state;
    expect_about(&about, "{\n"
                         "  \"name\": \"a\\\"b\",\n"
                         "  \"source_name\": \"\xc3\xa9\",\n"
                         "  \"rank\": 3,\n"
                         "  \"dtype\": \"BFloat16\",\n"
                         "  \"source_dtype\": \"Float32\",\n"
                         "  \"numpy\": \"<V2\",\n"
                         "  \"really\": \"bfloat16\",\n"
                         "  \"shape\": [2, 4],\n"
                         "  \"bytes\": 16,\n"
                         "  \"whole\": [8, 4],\n"
                         "  \"source_pieces\": [4, 1],\n"
                         "  \"pieces\": [8, 1],\n"
                         "  \"boxes\": [[[0, 1], [0, 4]], [[4, 5], [0, 4]]],\n"
                         "  \"source_ranks\": [0, 2],\n"
                         "  \"source_files\": [\n"
                         "    \"/s/a\",\n"
                         "    \"/s/\\\"\\\\xff\\\\x0a\"\n"
                         "  ]\n"
                         "}\n");
    expect_about(
        &(struct rfs_about){
            .name = "s", .source_name = "s", .type = &source, .source_type = &source, .rank = -1},
        "{\n"
        "  \"name\": \"s\",\n"
        "  \"dtype\": \"Float32\",\n"
        "  \"numpy\": \"<f4\",\n"
        "  \"shape\": [2, 4],\n"
        "  \"bytes\": 32,\n"
        "  \"source_ranks\": [],\n"
        "  \"source_files\": []\n"
        "}\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_headers),           TEST(test_padding),    TEST(test_types),
        TEST(test_what_is_no_tensor), TEST(test_long_shape), TEST(test_about),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
