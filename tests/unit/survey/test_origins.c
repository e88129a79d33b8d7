/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What shown bytes are made of: what is said to be a plain range of a source is one, and what has
 * the same key has the same bytes.
 */
#include "reshard.h"
#include "survey/origins.h"
#include "tests/unit/view/support.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#define NO_CUT_ITEMS LAYOUT("w", "[2]", "[0, -1]", "[8, 4]") ", " LAYOUT("b", "[2]", "[-1]", "[4]")

/* Bytes of a source file. */
struct lent {
    const struct rfs_origins_run *at;
    unsigned char *data; /* NULL: no file was lent */
};

static void read_source(void *ctx, int fd)
{
    struct lent *bytes = ctx;
    const size_t n = bytes->at->end - bytes->at->begin;

    bytes->data = malloc(n + 1);
    assert_non_null(bytes->data);
    assert_int_equal(pread(fd, bytes->data, n, (off_t)bytes->at->source), n);
}

static unsigned char *source_bytes(struct fixture *f, const struct rfs_origins_run *plain)
{
    struct lent bytes = {plain, NULL};

    assert_int_equal(rfs_origins_lend(f->view, plain, read_source, &bytes), 0);
    assert_non_null(bytes.data);
    return bytes.data;
}

/*
 * Each plain range of at least LEAST bytes holds what it should; returns how many bytes they have
 * in all.
 */
static uint64_t check_plain(struct fixture *f, unsigned rank, uint64_t begin, uint64_t end,
                            uint64_t least)
{
    const uint64_t id = file_id(f, rank);
    struct rfs_origins_run plain;
    size_t n;
    uint64_t sum = 0;
    unsigned char *file = read_rank(f, rank, &n);

    for (uint64_t at = begin; rfs_origins_find_run(f->view, id, at, end, least, &plain) == 1;
         at = plain.end) {
        assert_true(plain.begin >= at && plain.end <= end && plain.end <= n);
        assert_true(plain.end - plain.begin >= least);
        unsigned char *source = source_bytes(f, &plain);
        assert_memory_equal(file + plain.begin, source, plain.end - plain.begin);
        free(source);
        sum += plain.end - plain.begin;
    }
    free(file);
    return sum;
}

/* Compares every rank and range. */
static void check_all(struct fixture *f, unsigned ranks)
{
    for (unsigned rank = 0; rank < ranks; rank++) {
        reshard_stat st;
        assert_int_equal(stat_rank(f, rank, &st), 0);
        for (uint64_t begin = 0; begin <= st.size; begin += 3)
            for (uint64_t end = begin; end <= st.size + 5; end += 7)
                check_plain(f, rank, begin, end, 1 + begin % 5);
    }
}

static void plain_ranges_are_what_is_in_the_sources(void **state)
{
    struct fixture *f = *state;

    open_view(f);
    check_all(f, 2);
    /* w is cut along axis 1: two bytes each time; b and steps are whole. */
    assert_int_equal(check_plain(f, 0, 0, UINT64_MAX, 3), 4);
    assert_int_equal(check_plain(f, 0, 0, UINT64_MAX, 1), 4 + 1);
}

static void rows_of_several_sources_are_pieces(void **state)
{
    struct fixture *f = *state;

    write_strategy(f->root, "dst.json", NO_CUT_ITEMS);
    open_view(f);
    check_all(f, 2);
    /* 16 bytes of w, eight from each of two sources. */
    assert_int_equal(check_plain(f, 0, 0, UINT64_MAX, 8), 16);
    assert_int_equal(check_plain(f, 0, 0, UINT64_MAX, 9), 0);
}

static void what_is_converted_is_not_plain(void **state)
{
    struct fixture *f = *state;
    struct rfs_origins_run plain;
    reshard_stat st;

    assert_int_equal(open_with(f, "crc"), 0);
    assert_int_equal(stat_rank(f, 0, &st), 0);
    /* The trailer is of no source. */
    assert_int_equal(rfs_origins_find_run(f->view, file_id(f, 0), st.size - 17, st.size, 1, &plain),
                     0);
    assert_int_equal(rfs_origins_find_run(f->view, file_id(f, 0), st.size, st.size + 9, 1, &plain),
                     0);
    assert_int_equal(rfs_origins_find_run(f->view, 999, 0, 1, 1, &plain), -ENOENT);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void key_of(struct fixture *f, unsigned rank, uint64_t begin, uint64_t end, uint64_t key[2])
{
    reshard_stat st;

    assert_int_equal(stat_rank(f, rank, &st), 0);
    assert_int_equal(rfs_origins_key(f->view, file_id(f, rank), begin, end, key), 0);
}

/* Compares ranges of two ranks: equal keys mean equal bytes. Returns how many have one key. */
static unsigned compare_ranks(struct fixture *f, unsigned a, unsigned b, uint64_t step)
{
    size_t n, m;
    unsigned same = 0;
    unsigned char *one = read_rank(f, a, &n);
    unsigned char *two = read_rank(f, b, &m);

    assert_int_equal(n, m);
    for (uint64_t at = 0; at < n; at += step) {
        const size_t size = at + step < n ? step : n - at;
        uint64_t key[2], other[2];
        key_of(f, a, at, at + size, key);
        key_of(f, b, at, at + size, other);
        if (key[0] != other[0] || key[1] != other[1])
            continue;
        same++;
        assert_memory_equal(one + at, two + at, size);
    }
    free(one);
    free(two);
    return same;
}

static void equal_keys_are_equal_bytes(void **state)
{
    struct fixture *f = *state;

    open_view(f);
    for (uint64_t step = 1; step < 40; step++) {
        const unsigned same = compare_ranks(f, 0, 1, step);
        assert_true(step > 1 || same > 0); /* headers at least */
    }
}

/* Byte of rank 0's file at which the content of w begins. */
static uint64_t begin_of_w(struct fixture *f)
{
    unsigned char w[2];
    size_t n;
    unsigned char *data = read_rank(f, 0, &n);
    uint64_t at = 0;

    fill(w, "w", 0, 2);
    while (at + 2 <= n && memcmp(data + at, w, 2) != 0)
        at++;
    free(data);
    assert_true(at + 16 < n);
    return at;
}

static void replicas_have_equal_keys(void **state)
{
    struct fixture *f = *state;
    uint64_t key[2], other[2];

    /*
     * Each of two ranks is shown twice. (What is not cut may come from another source rank for
     * each.)
     */
    write_strategy(
        f->root, "dst.json",
        LAYOUT("w", "[2, 2]", "[-1, 0]", "[8, 4]") ", " LAYOUT("b", "[2, 2]", "[-1]", "[4]"));
    open_view(f);
    const uint64_t w = begin_of_w(f);
    key_of(f, 0, 0, w + 16, key);
    key_of(f, 2, 0, w + 16, other);
    assert_memory_equal(key, other, sizeof key);
    key_of(f, 1, 0, w + 16, other);
    assert_memory_not_equal(key, other, sizeof key);
}

static void keys_are_the_same_in_a_later_view(void **state)
{
    struct fixture *f = *state;
    uint64_t key[2], other[2];

    open_view(f);
    key_of(f, 1, 0, UINT64_MAX, key);
    key_of(f, 0, 0, UINT64_MAX, other);
    assert_memory_not_equal(key, other, sizeof key);
    reshard_close(f->view);
    f->view = NULL;
    open_view(f);
    key_of(f, 1, 0, UINT64_MAX, other);
    assert_memory_equal(key, other, sizeof key);
}

/* ---- checksums ------------------------------------------------------------------------------- */

/* A source that has changed is lent to nobody, or the loan fails. */
static void a_changed_source_is_not_lent(void **state)
{
    struct fixture *f = *state;
    struct rfs_origins_run plain;
    struct lent bytes = {&plain, NULL};
    const char *path;
    struct stat st;
    size_t n;

    open_view(f);
    free(read_rank(f, 0, &n));
    assert_int_equal(rfs_origins_find_run(f->view, file_id(f, 0), 0, n, 1, &plain), 1);
    assert_int_equal(rfs_origins_source(f->view, file_id(f, 0), 0, &path, &st), 1);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    assert_int_equal(rfs_origins_lend(f->view, &plain, read_source, &bytes), -ESTALE);
    free(bytes.data);
}

static void a_checksum_that_is_told_is_believed(void **state)
{
    struct fixture *f = *state;
    unsigned char data[4096], end[4];
    struct rfs_origins_about about;
    reshard_stat st;

    open_view(f);
    assert_int_equal(stat_rank(f, 0, &st), 0);
    rfs_origins_about(f->view, file_id(f, 0), &about);
    assert_false(about.has_crc);
    reshard_close(f->view);
    f->view = NULL;
    assert_int_equal(open_with(f, "crc"), 0);
    for (unsigned rank = 0; rank < 2; rank++) {
        const uint64_t id = file_id(f, rank);
        assert_int_equal(stat_rank(f, rank, &st), 0);
        rfs_origins_about(f->view, id, &about);
        assert_true(about.has_crc);
        assert_int_equal(about.trailer, st.size - 17);
        assert_int_equal(reshard_pread(f->view, id, data, about.trailer, 0), about.trailer);
        uint32_t crc = (uint32_t)crc32(0, data, (unsigned)about.trailer);
        if (rank == 1)
            rfs_origins_set_crc(f->view, id, crc = 0x01020304);
        assert_int_equal(reshard_pread(f->view, id, end, 4, st.size - 4), 4);
        assert_int_equal(
            (uint32_t)end[0] << 24 | (uint32_t)end[1] << 16 | (uint32_t)end[2] << 8 | end[3], crc);
        if (rank == 0) { /* it is known already */
            rfs_origins_set_crc(f->view, id, 1);
            assert_int_equal(reshard_pread(f->view, id, data, 4, st.size - 4), 4);
            assert_memory_equal(data, end, 4);
        }
    }
}

static void each_file_is_of_a_rank(void **state)
{
    struct fixture *f = *state;

    open_view(f);
    struct rfs_origins_about about;

    rfs_origins_about(f->view, file_id(f, 1), &about);
    assert_int_equal(about.rank, 1);
    rfs_origins_about(f->view, RESHARD_ROOT, &about);
    assert_int_equal(about.rank, UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plain_ranges_are_what_is_in_the_sources, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_of_several_sources_are_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_converted_is_not_plain, set_up, tear_down),
        cmocka_unit_test_setup_teardown(equal_keys_are_equal_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(replicas_have_equal_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keys_are_the_same_in_a_later_view, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_changed_source_is_not_lent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_checksum_that_is_told_is_believed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_file_is_of_a_rank, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
