/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files whose parameters have other dtypes and names than their sources: sizes, headers, and bytes
 * at any offset.
 */
#include "assemble/cast.h"
#include "tests/unit/view/support.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))
#define SOURCE_RANKS 4u

/* A parameter of the source: rows cut over the four source ranks, or not at all. */
struct param {
    const char *name, *shown;
    enum rfs_dtype from, to;
    bool cut;
    uint64_t rows, columns;
};

static unsigned char *content_of(const struct param *param)
{
    const uint64_t n = param->rows * param->columns * rfs_dtype_bytes(param->from);
    unsigned char *data = malloc(n);
    uint64_t state = (unsigned char)param->name[0];
    assert_non_null(data);
    for (uint64_t i = 0; i < n; i++)
        data[i] = (unsigned char)test_below(&state, 256);
    return data;
}

/* Rows [r0, r1) and columns [c0, c1) in a file, as TO. */
static void add_value(struct bytes *file, const struct param *param, const char *name,
                      enum rfs_dtype to, uint64_t r0, uint64_t r1, uint64_t c0, uint64_t c1)
{
    const uint64_t dims[2] = {r1 - r0, c1 - c0};
    const uint32_t from_bytes = rfs_dtype_bytes(param->from), to_bytes = rfs_dtype_bytes(to);
    unsigned char *content = content_of(param);
    unsigned char *out = malloc(dims[0] * dims[1] * to_bytes);
    assert_non_null(out);
    for (uint64_t r = 0; r < dims[0]; r++) {
        const unsigned char *row = content + ((r0 + r) * param->columns + c0) * from_bytes;
        if (to == param->from)
            memcpy(out + r * dims[1] * to_bytes, row, dims[1] * to_bytes);
        else
            rfs_cast_portably(to, out + r * dims[1] * to_bytes, param->from, row, dims[1]);
    }
    ckpt_tensor(file, name, rfs_dtype_name(to), 2, dims, out, dims[0] * dims[1] * to_bytes);
    free(out);
    free(content);
}

/* A layout of a matrix over DEVICES in a line, its rows cut, or its columns, or neither. */
static void add_layout(struct bytes *items, const char *name, const struct param *param,
                       unsigned devices, const char *map)
{
    char item[256];
    const int n = snprintf(
        item, sizeof item,
        "%s\"%s\": {\"dev_matrix\": [%u], \"tensor_map\": [%s], \"tensor_shape\": [%llu, %llu], "
        "\"field\": 0, \"opt_weight_shard_step\": 0, \"opt_weight_shard_size\": 0}",
        items->n > 0 ? ", " : "", name, devices, map, (unsigned long long)param->rows,
        (unsigned long long)param->columns);
    bytes_add(items, item, (size_t)n);
}

/* The tree and both strategies; the destination cuts columns in two and knows the shown names. */
static void write_tree(struct fixture *f, const struct param *params, size_t n)
{
    struct bytes src = {0}, dst = {0};
    for (size_t i = 0; i < n; i++) {
        add_layout(&src, params[i].name, &params[i], SOURCE_RANKS,
                   params[i].cut ? "0, -1" : "-1, -1");
        add_layout(&dst, params[i].shown, &params[i], 2, params[i].cut ? "-1, 0" : "-1, -1");
    }
    bytes_add(&src, "", 1);
    bytes_add(&dst, "", 1);
    write_strategy(f->root, "src.json", (const char *)src.data);
    write_strategy(f->root, "dst.json", (const char *)dst.data);
    bytes_free(&src);
    bytes_free(&dst);
    for (unsigned rank = 0; rank < SOURCE_RANKS; rank++) {
        struct bytes file = {0};
        char path[64];
        for (size_t i = 0; i < n; i++) {
            const uint64_t rows = params[i].cut ? params[i].rows / SOURCE_RANKS : params[i].rows;
            const uint64_t first = params[i].cut ? rank * rows : 0;
            add_value(&file, &params[i], params[i].name, params[i].from, first, first + rows, 0,
                      params[i].columns);
        }
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, file.data, file.n);
        bytes_free(&file);
    }
}

static void expected_file(struct bytes *file, const struct param *params, size_t n, unsigned rank)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t columns = params[i].cut ? params[i].columns / 2 : params[i].columns;
        const uint64_t first = params[i].cut ? rank * columns : 0;
        add_value(file, &params[i], params[i].shown, params[i].to, 0, params[i].rows, first,
                  first + columns);
    }
}

static void open_or_fail(struct fixture *f, const char *options)
{
    if (open_with(f, options))
        fail_msg("%s", f->err.message);
}

static const struct param small[] = {
    {"a.w", "a.w", RFS_FLOAT32, RFS_BFLOAT16, true, 4, 6},
    {"norm.w", "norm.w", RFS_FLOAT16, RFS_FLOAT64, true, 4, 4},
    {"int", "int", RFS_INT32, RFS_INT32, true, 4, 2},
    {"f8", "f8", RFS_FLOAT8_E4M3FN, RFS_BFLOAT16, false, 3, 3},
    {"keep", "keep", RFS_FLOAT32, RFS_FLOAT32, true, 4, 2},
    {"d", "d", RFS_FLOAT64, RFS_BFLOAT16, false, 2, 3},
    {"h", "h", RFS_BFLOAT16, RFS_BFLOAT16, true, 4, 2},
};
#define SMALL_RULES "dtype=bfloat16;norm.*=float64;keep=keep"

static void test_any_offset_and_size(void **state)
{
    struct fixture *f = *state;
    struct bytes expected = {0};
    reshard_reader *reader;
    unsigned char buf[2048 + RESHARD_SCRATCH_EXTRA];

    write_tree(f, small, ARRAY_SIZE(small));
    open_or_fail(f, SMALL_RULES);
    for (unsigned rank = 0; rank < 2; rank++) {
        expected.n = 0;
        expected_file(&expected, small, ARRAY_SIZE(small), rank);
        assert_true(expected.n < 2048);
        expect_file(f, rank, &expected);
        assert_int_equal(reshard_reader_open(f->view, file_id(f, rank), &reader), 0);
        for (size_t offset = 0; offset <= expected.n; offset++)
            for (size_t size = 0; offset + size <= expected.n + 1; size += 1 + size / 40) {
                const size_t wanted = offset + size > expected.n ? expected.n - offset : size;
                assert_int_equal(reshard_reader_pread(reader, buf, size, offset), wanted);
                assert_memory_equal(buf, expected.data + offset, wanted);
            }
        reshard_reader_close(reader);
    }
    bytes_free(&expected);
}

/*
 * Contiguous and gathered ones of several pieces and conversions each way, more than one in a read.
 */
static const struct param large[] = {
    {"a", "a", RFS_FLOAT32, RFS_BFLOAT16, true, 1024, 600},
    {"b", "b", RFS_BFLOAT16, RFS_FLOAT32, true, 512, 1030},
    {"c", "c", RFS_FLOAT32, RFS_BFLOAT16, false, 777, 1001},
    {"tiny", "tiny", RFS_FLOAT32, RFS_BFLOAT16, false, 1, 1},
    {"d", "d", RFS_FLOAT16, RFS_FLOAT64, false, 333, 1001},
    {"e", "e", RFS_FLOAT8_E5M2, RFS_FLOAT32, true, 1024, 514},
    {"f", "f", RFS_FLOAT64, RFS_FLOAT16, true, 400, 700},
    {"i", "i", RFS_INT16, RFS_INT16, true, 256, 514},
};
#define LARGE_RULES "dtype=bfloat16;[be]=float32;d=float64;f=float16"

static void read_range(reshard_reader *reader, const struct bytes *expected, uint64_t offset,
                       size_t size, unsigned char *buf)
{
    const size_t wanted = offset + size > expected->n ? expected->n - offset : size;
    struct iovec iov[16];
    reshard_loan *loan;
    uint64_t at = offset;
    int n;

    assert_int_equal(reshard_reader_pread(reader, buf, size, offset), wanted);
    assert_memory_equal(buf, expected->data + offset, wanted);
    assert_int_equal(reshard_reader_borrow(reader, buf, size, offset, iov, 16, &n, &loan), wanted);
    for (int i = 0; i < n; i++) {
        assert_memory_equal(iov[i].iov_base, expected->data + at, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    assert_int_equal(at, offset + wanted);
    reshard_return(loan);
}

static void test_large_reads(void **state)
{
    static const char *const options[] = {LARGE_RULES, LARGE_RULES ",cache=1M",
                                          LARGE_RULES ",cache=0"};
    const size_t most = 2000000;
    struct fixture *f = *state;
    uint64_t rng = test_seed();
    unsigned char *buf = malloc(most + RESHARD_SCRATCH_EXTRA);
    reshard_reader *reader;

    assert_non_null(buf);
    write_tree(f, large, ARRAY_SIZE(large));
    for (size_t o = 0; o < ARRAY_SIZE(options); o++) {
        struct bytes expected = {0};
        const unsigned rank = test_below(&rng, 2);
        open_or_fail(f, options[o]);
        expected_file(&expected, large, ARRAY_SIZE(large), rank);
        expect_file(f, rank, &expected);
        for (int round = 0; round < 6; round++) {
            assert_int_equal(reshard_reader_open(f->view, file_id(f, rank), &reader), 0);
            const size_t step = 1 + test_below(&rng, round % 2 ? (uint32_t)most : 200000);
            for (uint64_t at = 0; at < expected.n; at += step)
                read_range(reader, &expected, at, step, buf);
            for (int k = 0; k < 20; k++)
                read_range(reader, &expected, test_below(&rng, (uint32_t)expected.n),
                           1 + test_below(&rng, k % 2 ? 300000 : 20), buf);
            reshard_reader_close(reader);
        }
        bytes_free(&expected);
        reshard_close(f->view);
        f->view = NULL;
    }
    free(buf);
}

/*
 * What a sequential reader is going to read is made ahead here, too. (Not if the reader is faster,
 * so it may take more than one.)
 */
static void test_read_ahead(void **state)
{
    struct fixture *f = *state;
    static unsigned char buf[128 << 10];
    reshard_statistics statistics = {.struct_size = sizeof statistics};
    reshard_reader *reader;

    write_tree(f, large, ARRAY_SIZE(large));
    for (int k = 0; k < 1000 && statistics.read_ahead_pieces == 0; k++) {
        ssize_t n = 1;
        reshard_close(f->view); /* what is cached already is not made ahead */
        f->view = NULL;
        open_or_fail(f, LARGE_RULES);
        assert_int_equal(reshard_reader_open(f->view, file_id(f, 0), &reader), 0);
        for (uint64_t at = 0; n > 0; at += (uint64_t)n) {
            n = reshard_reader_pread(reader, buf, sizeof buf, at);
            assert_true(n >= 0);
        }
        reshard_reader_close(reader);
        reshard_get_statistics(f->view, &statistics);
    }
    assert_true(statistics.read_ahead_pieces > 0);
}

static void write_names(struct fixture *f, const char *json)
{
    tree_write(f->root, "map.json", json, strlen(json));
}

static int open_with_names(struct fixture *f, const char *more)
{
    char options[4300];
    snprintf(options, sizeof options, "names=%s%s", tree_path(f->root, "map.json"), more);
    return open_with(f, options);
}

static void test_names_and_dtypes(void **state)
{
    static const struct param params[] = {
        {"model.a", "layer.a", RFS_FLOAT32, RFS_FLOAT16, true, 4, 6},
        {"b", "model.a", RFS_FLOAT32, RFS_FLOAT32, true, 8, 2},
        {"c", "c", RFS_FLOAT32, RFS_FLOAT32, false, 1, 2},
    };
    struct fixture *f = *state;
    struct bytes expected = {0};

    /* Rules go by the names that are shown. */
    write_tree(f, params, ARRAY_SIZE(params));
    write_names(f, "{\"model.a\": \"layer.a\", \"b\": \"model.a\", \"d\": null}");
    assert_int_equal(open_with_names(f, ",dtype=layer.*=float16;b=float16"), 0);
    for (unsigned rank = 0; rank < 2; rank++) {
        expected.n = 0;
        expected_file(&expected, params, ARRAY_SIZE(params), rank);
        expect_file(f, rank, &expected);
    }
    assert_non_null(strstr(f->lines.text, "1 of its names are not parameters of the source: d\n"));
    bytes_free(&expected);
}

static void test_left_out(void **state)
{
    struct fixture *f = *state;
    struct bytes expected = {0};

    write_tree(f, small, ARRAY_SIZE(small));
    write_names(f, "{\"a.w\": null, \"norm.w\": null, \"keep\": null, \"h\": null}");
    assert_int_equal(open_with_names(f, ""), 0);
    const struct param left[] = {
        {"int", "int", RFS_INT32, RFS_INT32, true, 4, 2},
        {"f8", "f8", RFS_FLOAT8_E4M3FN, RFS_FLOAT8_E4M3FN, false, 3, 3},
        {"d", "d", RFS_FLOAT64, RFS_FLOAT64, false, 2, 3},
    };
    expected_file(&expected, left, ARRAY_SIZE(left), 1);
    expect_file(f, 1, &expected);
    bytes_free(&expected);
}

static void test_two_by_one_name(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    write_tree(f, small, ARRAY_SIZE(small));
    write_names(f, "{\"int\": \"keep\"}");
    assert_int_equal(open_with_names(f, ""), 0);
    assert_int_equal(stat_rank(f, 0, &st), -EINVAL);
    if (!strstr(f->err.message, "would both be shown as 'keep'"))
        fail_msg("%s", f->err.message);
}

/* 256 sparse files of 1 TiB each make one that is just not too large, unless it is converted. */
static void test_too_large_to_convert(void **state)
{
    const uint64_t dims[1] = {UINT64_C(1) << 40};
    struct fixture *f = *state;
    struct bytes file = {0};
    reshard_stat st;
    char path[64];

    write_strategy(f->root, "src.json", LAYOUT("w", "[256]", "[0]", "[281474976710656]"));
    write_strategy(f->root, "dst.json", LAYOUT("w", "[1]", "[-1]", "[281474976710656]"));
    for (unsigned rank = 0; rank < SOURCE_RANKS; rank++) {
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        assert_int_equal(unlink(tree_path(f->root, path)), 0);
    }
    ckpt_header(&file, "w", "Float8E5M2", 1, dims, dims[0]);
    for (unsigned rank = 0; rank < 256; rank++) {
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, file.data, file.n);
        if (truncate(tree_path(f->root, path), (off_t)(file.n + dims[0]))) {
            bytes_free(&file);
            skip(); /* this file system has no files of that size, sparse or not */
        }
    }
    open_or_fail(f, "dtype=float32");
    if (stat_rank(f, 0, &st))
        fail_msg("%s", f->err.message);
    assert_true(st.size > UINT64_C(4) << 48);
    reshard_close(f->view);
    open_or_fail(f, "dtype=float64");
    assert_int_equal(stat_rank(f, 0, &st), -EFBIG);
    bytes_free(&file);
}

static void test_mistakes(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(open_with(f, "dtype=int8"), -EINVAL);
    assert_int_equal(f->err.usage, 1);
    assert_null(f->view);
    assert_int_equal(open_with(f, "names=/nonexistent/map.json"), -ENOENT);
    assert_null(f->view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_any_offset_and_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_read_ahead, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_and_dtypes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_two_by_one_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_too_large_to_convert, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mistakes, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("view: names and dtypes", tests, NULL, NULL);
}
