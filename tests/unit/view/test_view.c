/* SPDX-License-Identifier: Apache-2.0 */
/* Views of small trees whose every byte is written down here. */
#include "reshard.h"
#include "tests/support/tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A JSON strategy of one-axis cuts: each parameter's axis 0 (or none) over DEVICES in a line. */
static void write_strategy(const char *root, const char *name, const char *items)
{
    char text[8192];
    const int n = snprintf(text, sizeof text,
                           "{\"current_stage\": 1, \"parallel_strategy_item\": {\"op\": "
                           "{\"stage\": 0, \"parallel_strategy\": [[1]]}}, "
                           "\"parallel_layout_item\": {%s}}",
                           items);
    assert_in_range(n, 1, sizeof text - 1);
    tree_write(root, name, text, (size_t)n);
}

#define LAYOUT(name, dev, map, shape)                                                              \
    "\"" name "\": {\"dev_matrix\": " dev ", \"tensor_map\": " map ", \"tensor_shape\": " shape    \
    ", \"field\": 0, \"opt_weight_shard_step\": 0, \"opt_weight_shard_size\": 0}"

static unsigned char pattern(const char *name, uint64_t element)
{
    return (unsigned char)(element * 7 + (element >> 8) + (unsigned char)name[0] * 3);
}

static void fill(unsigned char *out, const char *name, uint64_t from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = pattern(name, from + i);
}

struct log_lines {
    char text[4096];
};

static void keep_line(void *ctx, enum reshard_level level, const char *line)
{
    struct log_lines *lines = ctx;
    const size_t used = strlen(lines->text);
    snprintf(lines->text + used, sizeof lines->text - used, "%d:%s\n", (int)level, line);
}

struct fixture {
    char *root;
    reshard_view *view;
    reshard_error err;
    struct log_lines lines;
};

static int open_with(struct fixture *f, const char *more)
{
    char options[8192];

    snprintf(options, sizeof options, "src_strategy=%s,dst_strategy=%s%s%s",
             tree_path(f->root, "src.json"), tree_path(f->root, "dst.json"), *more ? "," : "",
             more);
    const reshard_config config = {sizeof config, options, keep_line, &f->lines};
    f->err = (reshard_error){.struct_size = sizeof f->err};
    return reshard_open(tree_path(f->root, "src"), &config, &f->view, &f->err);
}

static void open_view(struct fixture *f)
{
    if (open_with(f, ""))
        fail_msg("%s", f->err.message);
}

static uint64_t file_id(struct fixture *f, unsigned rank)
{
    char dir[32];
    char file[64];
    uint64_t id;

    snprintf(dir, sizeof dir, "rank_%u", rank);
    snprintf(file, sizeof file, "checkpoint_%u.ckpt", rank);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, dir, &id), 0);
    assert_int_equal(reshard_lookup(f->view, id, file, &id), 0);
    return id;
}

static int stat_rank(struct fixture *f, unsigned rank, reshard_stat *st)
{
    *st = (reshard_stat){.struct_size = sizeof *st};
    f->err = (reshard_error){.struct_size = sizeof f->err};
    return reshard_getattr(f->view, file_id(f, rank), st, &f->err);
}

static unsigned char *read_rank(struct fixture *f, unsigned rank, size_t *n)
{
    reshard_stat st;

    if (stat_rank(f, rank, &st))
        fail_msg("%s", f->err.message);
    unsigned char *data = malloc(st.size + 1);
    assert_non_null(data);
    assert_int_equal(reshard_pread(f->view, st.id, data, st.size + 1, 0), st.size);
    *n = st.size;
    return data;
}

static void expect_file(struct fixture *f, unsigned rank, const struct bytes *expected)
{
    size_t n;
    unsigned char *data = read_rank(f, rank, &n);

    assert_int_equal(n, expected->n);
    assert_memory_equal(data, expected->data, n);
    free(data);
}

/*
 * "w" [8, 4] of one byte each cut along axis 0 over four ranks; "b" [4] in both strategies, never cut;
 * "steps", a scalar in neither. The destination cuts w along axis 1 over two.
 */
#define SRC_ITEMS LAYOUT("w", "[4]", "[0, -1]", "[8, 4]") ", " LAYOUT("b", "[4]", "[-1]", "[4]")
#define DST_ITEMS LAYOUT("w", "[2]", "[-1, 0]", "[8, 4]") ", " LAYOUT("b", "[2]", "[-1]", "[4]")

static void write_source_rank(const char *root, unsigned rank, unsigned char steps)
{
    struct bytes file = {0};
    unsigned char w[8];
    unsigned char b[4];
    char path[64];

    fill(w, "w", rank * 8, 8);
    fill(b, "b", 0, 4);
    ckpt_tensor(&file, "steps", "Int8", 0, NULL, &steps, 1);
    ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){2, 4}, w, 8);
    ckpt_tensor(&file, "b", "UInt8", 1, (uint64_t[]){4}, b, 4);
    snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
    tree_write(root, path, file.data, file.n);
    bytes_free(&file);
}

static void expected_rank(struct bytes *file, unsigned rank, unsigned char steps)
{
    unsigned char w[16];
    unsigned char b[4];

    for (unsigned row = 0; row < 8; row++)
        fill(w + row * 2, "w", row * 4 + rank * 2, 2);
    fill(b, "b", 0, 4);
    ckpt_tensor(file, "w", "Int8", 2, (uint64_t[]){8, 2}, w, 16);
    ckpt_tensor(file, "b", "UInt8", 1, (uint64_t[]){4}, b, 4);
    ckpt_tensor(file, "steps", "Int8", 0, NULL, &steps, 1);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    f->root = tree_new();
    write_strategy(f->root, "src.json", SRC_ITEMS);
    write_strategy(f->root, "dst.json", DST_ITEMS);
    for (unsigned rank = 0; rank < 4; rank++)
        write_source_rank(f->root, rank, 42);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    reshard_close(f->view);
    tree_remove(f->root);
    free(f);
    return 0;
}

static void test_files_are_the_transformed_ones(void **state)
{
    struct fixture *f = *state;

    open_view(f);
    for (unsigned rank = 0; rank < 2; rank++) {
        struct bytes expected = {0};
        expected_rank(&expected, rank, 42);
        expect_file(f, rank, &expected);
        bytes_free(&expected);
    }
}

static uint64_t opens(struct fixture *f)
{
    reshard_statistics stats = {.struct_size = sizeof stats};
    reshard_get_statistics(f->view, &stats);
    return stats.source_opens;
}

static void test_listing_opens_no_source(void **state)
{
    struct fixture *f = *state;
    reshard_dirent entry = {.struct_size = sizeof entry};
    reshard_stat st = {.struct_size = sizeof st};

    open_view(f);
    assert_int_equal(reshard_list(f->view, RESHARD_ROOT, 1, &entry), 1);
    assert_string_equal(entry.name, "rank_1");
    assert_true(entry.is_dir);
    assert_int_equal(reshard_list(f->view, RESHARD_ROOT, 2, &entry), 0);
    assert_int_equal(reshard_list(f->view, 4, 0, &entry), 1);
    assert_string_equal(entry.name, "checkpoint_1.ckpt");
    assert_int_equal(entry.id, 5);
    assert_false(reshard_is_ready(f->view, entry.id));
    assert_int_equal(reshard_getattr(f->view, 4, &st, NULL), 0);
    assert_true(S_ISDIR(st.mode));
    assert_int_equal(opens(f), 0);
    assert_int_equal(stat_rank(f, 1, &st), 0);
    assert_true(reshard_is_ready(f->view, 5));
    assert_int_equal(st.mode, S_IFREG | 0400);
    assert_true(opens(f) > 0);
}

static void test_unknown_names(void **state)
{
    struct fixture *f = *state;
    reshard_stat st = {.struct_size = sizeof st};
    uint64_t id;

    open_view(f);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "rank_2", &id), -ENOENT);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "rank_00", &id), -ENOENT);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "rank_+1", &id), -ENOENT);
    assert_int_equal(reshard_lookup(f->view, 2, "checkpoint_1.ckpt", &id), -ENOENT);
    assert_int_equal(reshard_lookup(f->view, 3, "x", &id), -ENOTDIR);
    assert_int_equal(reshard_getattr(f->view, 99, &st, NULL), -ENOENT);
    assert_int_equal(reshard_pread(f->view, 2, &st, 1, 0), -EISDIR);
}

static void test_any_offset_and_size(void **state)
{
    struct fixture *f = *state;
    struct bytes expected = {0};
    reshard_reader *reader;
    unsigned char buf[256];
    struct iovec iov[8];

    open_view(f);
    expected_rank(&expected, 1, 42);
    assert_int_equal(reshard_reader_open(f->view, file_id(f, 1), &reader), 0);
    for (size_t offset = 0; offset <= expected.n; offset++) {
        for (size_t size = 0; offset + size <= expected.n + 1; size++) {
            const size_t wanted = offset + size > expected.n ? expected.n - offset : size;
            reshard_loan *loan;
            int n_iov;
            size_t at = 0;
            assert_int_equal(reshard_reader_pread(reader, buf, size, offset), wanted);
            assert_memory_equal(buf, expected.data + offset, wanted);
            assert_int_equal(
                reshard_reader_borrow(reader, buf, size, offset, iov, 8, &n_iov, &loan), wanted);
            for (int i = 0; i < n_iov; i++) {
                assert_memory_equal(iov[i].iov_base, expected.data + offset + at, iov[i].iov_len);
                at += iov[i].iov_len;
            }
            assert_int_equal(at, wanted);
            reshard_return(loan);
        }
    }
    reshard_reader_close(reader);
    bytes_free(&expected);
}

static void test_a_lost_rank_without_replica(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(unlink(tree_path(f->root, "src/rank_2/net-1_2.ckpt")), 0);
    assert_int_equal(open_with(f, ""), -ENOENT);
    assert_non_null(strstr(f->err.message, "parameter 'w'"));
    assert_non_null(strstr(f->err.message, "rank_2"));
    assert_non_null(strstr(f->err.message, "no other rank"));
}

static void test_fewer_folders_than_ranks(void **state)
{
    struct fixture *f = *state;

    write_strategy(f->root, "src.json", LAYOUT("w", "[8]", "[0, -1]", "[16, 4]"));
    assert_int_equal(open_with(f, ""), -ENOENT);
    assert_non_null(strstr(f->err.message, "rank_4"));
}

/* "w" on a 2 x 2 matrix, cut over the inner axis: ranks 0 and 2, 1 and 3 hold the same slices. */
static void replicate(struct fixture *f, const unsigned char *steps)
{
    write_strategy(f->root, "src.json", LAYOUT("w", "[2, 2]", "[0]", "[8]"));
    write_strategy(f->root, "dst.json", LAYOUT("w", "[2, 2]", "[-1]", "[8]"));
    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        unsigned char w[4];
        char path[64];
        fill(w, "w", rank % 2 * 4, 4);
        ckpt_tensor(&file, "w", "Int8", 1, (uint64_t[]){4}, w, 4);
        ckpt_tensor(&file, "steps", "Int8", 0, NULL, &steps[rank], 1);
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, file.data, file.n);
        bytes_free(&file);
    }
}

static void test_a_lost_rank_with_a_replica(void **state)
{
    struct fixture *f = *state;
    struct bytes expected = {0};
    unsigned char w[8];

    replicate(f, (unsigned char[]){5, 5, 5, 5});
    assert_int_equal(unlink(tree_path(f->root, "src/rank_2/net-1_2.ckpt")), 0);
    open_view(f);
    fill(w, "w", 0, 8);
    ckpt_tensor(&expected, "w", "Int8", 1, (uint64_t[]){8}, w, 8);
    ckpt_tensor(&expected, "steps", "Int8", 0, NULL, "\x05", 1);
    expect_file(f, 2, &expected);
    expect_file(f, 3, &expected);
    assert_non_null(strstr(f->lines.text, "parameter 'steps': rank_2 is missing"));
    /* One line a lost rank, however many files need it. */
    const char *once =
        strstr(f->lines.text, "rank_2 is missing; what it holds is read from a replica, rank_0");
    assert_non_null(once);
    assert_null(strstr(once + 1, "rank_2 is missing; what"));
    bytes_free(&expected);
}

static void test_a_lost_value_of_many_elements(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    replicate(f, (unsigned char[]){5, 5, 5, 5});
    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        char path[64];
        ckpt_tensor(&file, "w", "Int8", 1, (uint64_t[]){4}, "\x01\x02\x03\x04", 4);
        ckpt_tensor(&file, "pair", "Int8", 1, (uint64_t[]){2}, "\x01\x02", 2);
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, file.data, file.n);
        bytes_free(&file);
    }
    assert_int_equal(unlink(tree_path(f->root, "src/rank_1/net-1_2.ckpt")), 0);
    open_view(f);
    assert_int_equal(stat_rank(f, 1, &st), -ENOENT);
    assert_non_null(strstr(f->err.message, "parameter 'pair'"));
}

static void test_strict_takes_single_elements(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    assert_int_equal(open_with(f, "strict"), 0);
    if (stat_rank(f, 0, &st))
        fail_msg("%s", f->err.message);
}

static void test_a_lost_value_that_nobody_proves(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    replicate(f, (unsigned char[]){5, 6, 5, 5});
    assert_int_equal(unlink(tree_path(f->root, "src/rank_2/net-1_2.ckpt")), 0);
    open_view(f);
    assert_int_equal(stat_rank(f, 2, &st), -ENOENT);
    assert_non_null(strstr(f->err.message, "parameter 'steps'"));
    assert_int_equal(stat_rank(f, 0, &st), 0);
}

static void test_copied_values_come_from_the_rank_itself(void **state)
{
    struct fixture *f = *state;
    size_t n;

    replicate(f, (unsigned char[]){1, 2, 3, 4});
    open_view(f);
    for (unsigned rank = 0; rank < 4; rank++) {
        unsigned char *data = read_rank(f, rank, &n);
        assert_int_equal(data[n - 1], rank + 1);
        free(data);
    }
}

static void test_only_in_one_strategy(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    write_strategy(f->root, "dst.json", LAYOUT("w", "[2]", "[-1, 0]", "[8, 4]"));
    open_view(f);
    assert_int_equal(stat_rank(f, 0, &st), 0);
    assert_non_null(
        strstr(f->lines.text, "1 parameter in only one strategy, copied unsliced: b\n"));
    reshard_close(f->view);
    assert_int_equal(open_with(f, "strict"), 0);
    assert_true(stat_rank(f, 0, &st) < 0);
    assert_non_null(strstr(f->err.message, "parameter 'b'"));
    assert_non_null(strstr(f->err.message, "only one of the strategies"));
}

static void test_slices_of_another_shape(void **state)
{
    struct fixture *f = *state;
    struct bytes file = {0};
    unsigned char data[16] = {0};
    reshard_stat st;

    ckpt_tensor(&file, "steps", "Int8", 0, NULL, data, 1);
    ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){4, 4}, data, 16);
    ckpt_tensor(&file, "b", "UInt8", 1, (uint64_t[]){4}, data, 4);
    tree_write(f->root, "src/rank_3/net-1_2.ckpt", file.data, file.n);
    bytes_free(&file);
    open_view(f);
    assert_int_equal(stat_rank(f, 0, &st), -EINVAL);
    assert_non_null(strstr(f->err.message, "rank_3"));
    assert_non_null(strstr(f->err.message, "'w'"));
}

static void test_a_parameter_that_one_rank_lacks(void **state)
{
    struct fixture *f = *state;
    struct bytes file = {0};
    unsigned char data[8] = {0};
    reshard_stat st;

    ckpt_tensor(&file, "steps", "Int8", 0, NULL, data, 1);
    ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){2, 4}, data, 8);
    tree_write(f->root, "src/rank_1/net-1_2.ckpt", file.data, file.n);
    bytes_free(&file);
    open_view(f);
    assert_int_equal(stat_rank(f, 0, &st), -EINVAL);
    assert_non_null(strstr(f->err.message, "'b'"));
    assert_non_null(strstr(f->err.message, "remove_redundancy"));
}

static void test_more_folders_than_ranks(void **state)
{
    struct fixture *f = *state;

    write_source_rank(f->root, 4, 42);
    assert_true(open_with(f, "") < 0);
    assert_non_null(strstr(f->err.message, "has rank_4"));
    assert_int_equal(f->err.usage, 0);
}

static void test_parts(void **state)
{
    struct fixture *f = *state;
    uint64_t id;

    write_strategy(f->root, "dst.json", DST_ITEMS ", " LAYOUT("other", "[2]", "[-1]", "[4]"));
    open_view(f);
    assert_int_equal(reshard_lookup(f->view, 4, "checkpoint_1_part0.ckpt", &id), 0);
    assert_int_equal(reshard_lookup(f->view, 4, "checkpoint_1.ckpt", &id), -ENOENT);
}

static void test_changed_source_fails_the_whole_file(void **state)
{
    struct fixture *f = *state;
    unsigned char byte;
    size_t n;

    open_view(f);
    free(read_rank(f, 0, &n));
    free(read_rank(f, 1, &n));
    write_source_rank(f->root, 2, 43);
    unsigned char data[256];
    assert_int_equal(reshard_pread(f->view, file_id(f, 0), data, sizeof data, 0), -ESTALE);
    /* Even its header, and the header of the other file that depends on the same source. */
    assert_int_equal(reshard_pread(f->view, file_id(f, 0), &byte, 1, 0), -ESTALE);
    assert_int_equal(reshard_pread(f->view, file_id(f, 1), &byte, 1, 0), -ESTALE);
    assert_non_null(strstr(f->lines.text, "rank_2"));
}

static void test_tensors_over_512_mib_are_chunked(void **state)
{
    struct fixture *f = *state;
    const uint64_t chunk = UINT64_C(512) << 20;
    const uint64_t dims[2] = {700, UINT64_C(1) << 20};
    struct bytes head = {0};
    struct bytes first = {0};
    struct bytes second = {0};
    reshard_stat st;
    unsigned char got[64];

    /* The source is one sparse rank with one chunk each of 512 and 188 MiB. */
    ckpt_header(&first, "w", "Int8", 2, dims, chunk);
    ckpt_header(&second, "w", "Int8", 2, dims, dims[0] * dims[1] - chunk);
    for (unsigned rank = 0; rank < 4; rank++)
        assert_int_equal(
            unlink(tree_path(f->root,
                             (const char *[]){"src/rank_0/net-1_2.ckpt", "src/rank_1/net-1_2.ckpt",
                                              "src/rank_2/net-1_2.ckpt",
                                              "src/rank_3/net-1_2.ckpt"}[rank])),
            0);
    tree_write(f->root, "src/rank_0/big.ckpt", first.data, first.n);
    FILE *file = fopen(tree_path(f->root, "src/rank_0/big.ckpt"), "r+b");
    assert_non_null(file);
    assert_int_equal(fseeko(file, (off_t)(first.n + chunk - 1), SEEK_SET), 0);
    assert_int_equal(fputc(0x5a, file), 0x5a);
    assert_int_equal(fwrite(second.data, 1, second.n, file), second.n);
    assert_int_equal(fputc(0xa5, file), 0xa5);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(tree_path(f->root, "src/rank_0/big.ckpt"),
                              (off_t)(first.n + second.n + dims[0] * dims[1])),
                     0);
    write_strategy(f->root, "src.json", LAYOUT("w", "[1]", "[-1, -1]", "[700, 1048576]"));
    write_strategy(f->root, "dst.json", LAYOUT("w", "[1]", "[-1, -1]", "[700, 1048576]"));
    open_view(f);
    assert_int_equal(stat_rank(f, 0, &st), 0);
    assert_int_equal(st.size, first.n + second.n + dims[0] * dims[1]);
    assert_int_equal(reshard_pread(f->view, st.id, got, first.n, 0), first.n);
    assert_memory_equal(got, first.data, first.n);
    assert_int_equal(reshard_pread(f->view, st.id, got, second.n + 2, first.n + chunk - 1),
                     second.n + 2);
    assert_int_equal(got[0], 0x5a);
    assert_memory_equal(got + 1, second.data, second.n);
    assert_int_equal(got[1 + second.n], 0xa5);
    bytes_free(&head);
    bytes_free(&first);
    bytes_free(&second);
}

static void test_no_strategy_on_one_side(void **state)
{
    struct fixture *f = *state;
    char options[4200];
    struct bytes expected = {0};
    unsigned char w[32];
    unsigned char b[4];

    snprintf(options, sizeof options, "src_strategy=%s,prefix=whole-",
             tree_path(f->root, "src.json"));
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    uint64_t id;
    assert_int_equal(reshard_open(tree_path(f->root, "src"), &config, &f->view, NULL), 0);
    assert_int_equal(reshard_lookup(f->view, 2, "whole-0.ckpt", &id), 0);
    fill(w, "w", 0, 32);
    fill(b, "b", 0, 4);
    ckpt_tensor(&expected, "w", "Int8", 2, (uint64_t[]){8, 4}, w, 32);
    ckpt_tensor(&expected, "b", "UInt8", 1, (uint64_t[]){4}, b, 4);
    ckpt_tensor(&expected, "steps", "Int8", 0, NULL, "*", 1);
    unsigned char got[256];
    assert_int_equal(reshard_pread(f->view, id, got, sizeof got, 0), expected.n);
    assert_memory_equal(got, expected.data, expected.n);
    bytes_free(&expected);
}

static void expect_usage(struct fixture *f, const char *options, const char *fragment)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};

    f->err = (reshard_error){.struct_size = sizeof f->err};
    assert_int_equal(reshard_open(tree_path(f->root, "src"), &config, &f->view, &f->err), -EINVAL);
    assert_null(f->view);
    assert_int_equal(f->err.usage, 1);
    assert_non_null(strstr(f->err.message, fragment));
}

static void test_mistakes_in_options(void **state)
{
    struct fixture *f = *state;

    expect_usage(f, NULL, "src_strategy");
    expect_usage(f, "src_stratgy=x", "unknown option 'src_stratgy'");
    expect_usage(f, "src_strategy=", "needs a value");
    expect_usage(f, "src_strategy=x,cache=2Q", "cache=2Q");
    expect_usage(f, "src_strategy=x,prefix=a/b", "prefix=a/b");
}

static void test_errors_fit_an_older_caller(void **state)
{
    struct fixture *f = *state;
    reshard_error small = {.struct_size = offsetof(reshard_error, message)};
    const reshard_config config = {.struct_size = sizeof config, .options = "nonsense"};

    memset(small.message, 'x', sizeof small.message);
    assert_int_equal(reshard_open(f->root, &config, &f->view, &small), -EINVAL);
    assert_int_equal(small.code, -EINVAL);
    assert_int_equal(small.message[0], 'x'); /* beyond the caller's struct */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files_are_the_transformed_ones, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_listing_opens_no_source, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unknown_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_any_offset_and_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lost_rank_without_replica, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fewer_folders_than_ranks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lost_rank_with_a_replica, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lost_value_that_nobody_proves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lost_value_of_many_elements, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_strict_takes_single_elements, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_copied_values_come_from_the_rank_itself, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_only_in_one_strategy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_slices_of_another_shape, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_parameter_that_one_rank_lacks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_more_folders_than_ranks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_changed_source_fails_the_whole_file, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_tensors_over_512_mib_are_chunked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_strategy_on_one_side, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mistakes_in_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_errors_fit_an_older_caller, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
