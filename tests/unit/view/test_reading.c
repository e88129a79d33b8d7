/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes at any offset, lent bytes, and sources that change under a reader. */
#include "tests/unit/view/support.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_any_offset_and_size(void **state)
{
    struct fixture *f = *state;
    struct bytes expected = {0};
    reshard_reader *reader;
    unsigned char buf[256 + RESHARD_SCRATCH_EXTRA];
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
    /* The read-ahead may have found it first, and be about to log it. */
    for (int i = 0; i < 60000 && !strstr(f->lines.text, "rank_2"); i++)
        usleep(1000);
    assert_non_null(strstr(f->lines.text, "rank_2"));
}

static void test_tensors_over_512_mib_are_chunked(void **state)
{
    struct fixture *f = *state;
    const uint64_t chunk = UINT64_C(512) << 20;
    const uint64_t dims[2] = {700, UINT64_C(1) << 20};
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
    bytes_free(&first);
    bytes_free(&second);
}

static void test_what_cannot_be_read(void **state)
{
    struct fixture *f = *state;
    reshard_reader *reader;
    unsigned char byte;

    open_view(f);
    assert_int_equal(reshard_reader_open(f->view, RESHARD_ROOT, &reader), -EISDIR);
    assert_null(reader);
    assert_int_equal(reshard_reader_open(f->view, 2, &reader), -EISDIR);
    assert_int_equal(reshard_reader_open(f->view, 99, &reader), -ENOENT);
    assert_null(reader);
    assert_int_equal(reshard_pread(f->view, 99, &byte, 1, 0), -ENOENT);
    assert_int_equal(reshard_pread(f->view, 3, &byte, 1, UINT64_MAX), 0);
    assert_int_equal(reshard_pread(f->view, 3, NULL, 0, 0), 0);
}

static void test_null_is_given_back(void **state)
{
    struct fixture *f = *state;
    reshard_reader *reader;
    unsigned char byte;

    reshard_return(NULL);
    reshard_reader_close(NULL);
    reshard_close(NULL);
    open_view(f);
    assert_int_equal(reshard_reader_open(f->view, 3, &reader), 0);
    assert_int_equal(reshard_reader_pread(reader, &byte, 1, 0), 1);
    reshard_reader_close(reader);
}

static void test_borrowing_needs_room(void **state)
{
    struct fixture *f = *state;
    unsigned char scratch[256 + RESHARD_SCRATCH_EXTRA];
    struct bytes expected = {0};
    reshard_reader *reader;
    struct iovec iov;
    int n = 7;

    open_view(f);
    expected_rank(&expected, 0, 42);
    assert_int_equal(reshard_reader_open(f->view, 3, &reader), 0);
    reshard_loan *loan = (reshard_loan *)scratch;
    assert_int_equal(reshard_reader_borrow(reader, scratch, 256, 0, &iov, 0, &n, &loan), -EINVAL);
    assert_null(loan);
    assert_int_equal(n, 0);
    assert_int_equal(reshard_reader_borrow(reader, scratch, 256, 0, &iov, 1, &n, &loan),
                     expected.n);
    assert_int_equal(n, 1);
    assert_memory_equal(iov.iov_base, expected.data, expected.n);
    reshard_return(loan);
    assert_int_equal(reshard_reader_borrow(reader, scratch, 256, expected.n, &iov, 1, &n, &loan),
                     0);
    assert_null(loan); /* nothing was lent */
    assert_int_equal(n, 0);
    reshard_return(loan);
    reshard_reader_close(reader);
    bytes_free(&expected);
}

#define TENSORS 70u

/*
 * Bytes of the slice that a source rank holds of tensor I: rows cut in two, or every third one's
 * columns.
 */
struct many {
    uint64_t rows[TENSORS];
    uint64_t columns[TENSORS];
};

static void many_shapes(struct many *many, uint64_t *rng)
{
    for (unsigned i = 0; i < TENSORS; i++) {
        many->rows[i] = 2 * (1 + test_below(rng, 300));
        many->columns[i] = 2 * (1 + test_below(rng, i % 7 == 0 ? 2500 : 100));
    }
}

/* Rows [r0, r1) and columns [c0, c1) of tensor I, as a value of the file. */
static void many_value(struct bytes *file, const struct many *many, unsigned i, uint64_t r0,
                       uint64_t r1, uint64_t c0, uint64_t c1)
{
    const uint64_t dims[2] = {r1 - r0, c1 - c0};
    unsigned char *data = malloc(dims[0] * dims[1]);
    char name[32];

    assert_non_null(data);
    snprintf(name, sizeof name, "%c%u", 'a' + (int)(i % 26), i);
    for (uint64_t r = r0; r < r1; r++)
        fill(data + (r - r0) * dims[1], name, r * many->columns[i] + c0, dims[1]);
    ckpt_tensor(file, name, "Int8", 2, dims, data, dims[0] * dims[1]);
    free(data);
}

static void many_strategy(const char *root, const char *file, const struct many *many, bool cut)
{
    struct bytes items = {0};
    char item[256];

    for (unsigned i = 0; i < TENSORS; i++) {
        const int n =
            snprintf(item, sizeof item,
                     "%s\"%c%u\": {\"dev_matrix\": [%d], \"tensor_map\": [%d, %d], "
                     "\"tensor_shape\": [%llu, %llu], \"field\": 0, "
                     "\"opt_weight_shard_step\": 0, \"opt_weight_shard_size\": 0}",
                     i > 0 ? ", " : "", 'a' + (int)(i % 26), i, cut ? 2 : 1, cut && i % 3 ? 0 : -1,
                     cut && i % 3 == 0 ? 0 : -1, (unsigned long long)many->rows[i],
                     (unsigned long long)many->columns[i]);
        bytes_add(&items, item, (size_t)n);
    }
    bytes_add(&items, "", 1);
    write_strategy(root, file, (const char *)items.data);
    bytes_free(&items);
}

static void many_write(struct fixture *f, const struct many *many, struct bytes *expected)
{
    many_strategy(f->root, "src.json", many, true);
    many_strategy(f->root, "dst.json", many, false);
    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        char path[64];
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        for (unsigned i = 0; rank < 2 && i < TENSORS; i++) {
            const uint64_t half = (i % 3 ? many->rows[i] : many->columns[i]) / 2;
            if (i % 3)
                many_value(&file, many, i, rank * half, (rank + 1) * half, 0, many->columns[i]);
            else
                many_value(&file, many, i, 0, many->rows[i], rank * half, (rank + 1) * half);
        }
        if (rank < 2)
            tree_write(f->root, path, file.data, file.n);
        else
            assert_int_equal(unlink(tree_path(f->root, path)), 0);
        bytes_free(&file);
    }
    for (unsigned rank = 2; rank < 4; rank++)
        assert_int_equal(rmdir(tree_path(f->root, rank == 2 ? "src/rank_2" : "src/rank_3")), 0);
    for (unsigned i = 0; i < TENSORS; i++)
        many_value(expected, many, i, 0, many->rows[i], 0, many->columns[i]);
}

/*
 * Borrows [offset, offset + size) with a scratch of just the size and alignment that chance gives.
 */
static void borrow_range(reshard_reader *reader, const struct bytes *expected, uint64_t offset,
                         size_t size, uint64_t *rng)
{
    const size_t shift = test_below(rng, 100);
    unsigned char *scratch = malloc(shift + size + RESHARD_SCRATCH_EXTRA);
    const int most = 1 + (int)test_below(rng, 64);
    struct iovec iov[64];
    reshard_loan *loan;
    uint64_t at = offset;
    int n;

    assert_non_null(scratch);
    const size_t wanted = offset + size > expected->n ? expected->n - offset : size;
    assert_int_equal(
        reshard_reader_borrow(reader, scratch + shift, size, offset, iov, most, &n, &loan), wanted);
    assert_in_range(n, 0, most);
    for (int i = 0; i < n; i++) {
        assert_memory_equal(iov[i].iov_base, expected->data + at, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    assert_int_equal(at, offset + wanted);
    reshard_return(loan);
    free(scratch);
}

/* Contiguous and gathered tensors of all sizes and alignments, in one answer and in many. */
static void test_many_tensors_in_an_answer(void **state)
{
    struct fixture *f = *state;
    uint64_t rng = test_seed();
    struct bytes expected = {0};
    struct many many;
    reshard_reader *reader;

    many_shapes(&many, &rng);
    many_write(f, &many, &expected);
    open_view(f);
    expect_file(f, 0, &expected);
    for (int round = 0; round < 12; round++) {
        assert_int_equal(reshard_reader_open(f->view, file_id(f, 0), &reader), 0);
        const size_t step = 1 + test_below(&rng, round % 2 ? 2000000 : 200000);
        for (uint64_t at = 0; at < expected.n; at += step)
            borrow_range(reader, &expected, at, step, &rng);
        for (int k = 0; k < 20; k++)
            borrow_range(reader, &expected, test_below(&rng, (uint32_t)expected.n),
                         1 + test_below(&rng, 300000), &rng);
        reshard_reader_close(reader);
    }
    bytes_free(&expected);
}

#define ROWS 1024u
#define COLUMNS 2048u

/* Four ranks have 256 rows each of "w" [1024, 2048]; the destination cuts the columns in two. */
static void write_wide(struct fixture *f)
{
    unsigned char *w = malloc((size_t)ROWS / 4 * COLUMNS);

    assert_non_null(w);
    write_strategy(f->root, "src.json", LAYOUT("w", "[4]", "[0, -1]", "[1024, 2048]"));
    write_strategy(f->root, "dst.json", LAYOUT("w", "[2]", "[-1, 0]", "[1024, 2048]"));
    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        char path[64];
        fill(w, "w", (uint64_t)rank * (ROWS / 4) * COLUMNS, (uint64_t)ROWS / 4 * COLUMNS);
        ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){ROWS / 4, COLUMNS}, w,
                    (uint64_t)ROWS / 4 * COLUMNS);
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, file.data, file.n);
        bytes_free(&file);
    }
    free(w);
}

/* Lent bytes are the view's: they outlive their reader, and later reads that need the cache. */
static void test_a_loan_outlives_its_reader(void **state)
{
    struct fixture *f = *state;
    const size_t size = (size_t)256 << 10;
    unsigned char *scratch = malloc(size + RESHARD_SCRATCH_EXTRA);
    unsigned char *expected = malloc((size_t)ROWS * COLUMNS / 2);
    reshard_reader *reader;
    reshard_loan *loan;
    reshard_stat st;
    struct iovec iov[8];
    int n;
    size_t lent = 0;

    assert_non_null(scratch);
    assert_non_null(expected);
    write_wide(f);
    assert_int_equal(open_with(f, "cache=2M"), 0);
    assert_int_equal(stat_rank(f, 1, &st), 0);
    for (unsigned row = 0; row < ROWS; row++)
        fill(expected + (size_t)row * (COLUMNS / 2), "w", (uint64_t)row * COLUMNS + COLUMNS / 2,
             COLUMNS / 2);
    assert_int_equal(reshard_reader_open(f->view, st.id, &reader), 0);
    assert_int_equal(
        reshard_reader_borrow(reader, scratch, size, st.size - size, iov, 8, &n, &loan), size);
    reshard_reader_close(reader);
    free(read_rank(f, 0, &(size_t){0}));
    const unsigned char *at = expected + (size_t)ROWS * COLUMNS / 2 - size;
    for (int i = 0; i < n; i++) {
        const unsigned char *base = iov[i].iov_base;
        assert_memory_equal(base, at, iov[i].iov_len);
        at += iov[i].iov_len;
        if (base < scratch || base >= scratch + size + RESHARD_SCRATCH_EXTRA)
            lent += iov[i].iov_len;
    }
    assert_ptr_equal(at, expected + (size_t)ROWS * COLUMNS / 2);
    assert_true(lent > 0);
    reshard_return(loan);
    free(expected);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_any_offset_and_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_tensors_in_an_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_changed_source_fails_the_whole_file, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_tensors_over_512_mib_are_chunked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_null_is_given_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_borrowing_needs_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_loan_outlives_its_reader, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("view: reading", tests, NULL, NULL);
}
