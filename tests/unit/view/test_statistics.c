/* SPDX-License-Identifier: Apache-2.0 */
/* What a view counts of the calls on it: bytes, failures, latencies. */
#include "tests/unit/view/support.h"

#include "view/statistics.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static reshard_statistics count(struct fixture *f)
{
    reshard_statistics s = {.struct_size = sizeof s};
    reshard_get_statistics(f->view, &s);
    return s;
}

static uint64_t answered(const reshard_statistics *s)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < RESHARD_LATENCIES; i++)
        n += s->latency[i];
    return n;
}

static void test_asked_and_replied(void **state)
{
    struct fixture *f = *state;
    struct bytes expected = {0};
    unsigned char buf[512];

    open_view(f);
    expected_rank(&expected, 1, 42);
    assert_int_equal(reshard_pread(f->view, file_id(f, 1), buf, 20, 0), 20);
    assert_int_equal(reshard_pread(f->view, file_id(f, 1), buf, 500, 1), expected.n - 1);
    assert_int_equal(reshard_pread(f->view, file_id(f, 1), buf, 7, expected.n), 0);
    assert_int_equal(reshard_pread(f->view, 99, buf, 7, 0), -ENOENT); /* no file, no read */
    const reshard_statistics s = count(f);
    assert_int_equal(s.reads, 2);
    assert_int_equal(s.bytes_asked, 20 + 500 + 7);
    assert_int_equal(s.bytes_replied, 20 + expected.n - 1);
    assert_int_equal(s.reads_failed, 0);
    assert_int_equal(s.source_errors, 0);
    assert_int_equal(answered(&s), 2);
    assert_true(s.latency_sum > 0);
    bytes_free(&expected);
}

/*
 * A changed source is one error, however often it is met; every call that meets it is one that
 * failed.
 */
static void test_failures(void **state)
{
    struct fixture *f = *state;
    unsigned char buf[512];

    open_view(f);
    assert_true(reshard_pread(f->view, file_id(f, 0), buf, sizeof buf, 0) > 0);
    write_source_rank(f->root, 2, 43);
    for (int i = 0; i < 3; i++)
        assert_int_equal(reshard_pread(f->view, file_id(f, 0), buf, sizeof buf, 0), -ESTALE);
    const reshard_statistics s = count(f);
    assert_int_equal(s.reads, 1);
    assert_int_equal(s.reads_failed, 3);
    assert_int_equal(s.source_errors, 1);
    assert_int_equal(s.bytes_asked, 4 * sizeof buf);
    assert_int_equal(answered(&s), 1);
}

static void test_buckets(void **state)
{
    static const struct {
        uint64_t nanoseconds;
        unsigned bucket;
    } cases[] = {
        {0, 0},           {999, 0},         {1000, 1},        {1999, 1},        {2000, 2},
        {3999, 2},        {4000, 3},        {1023999, 10},    {1024000, 11},    {2097151999, 21},
        {2097152000, 22}, {4194303999, 22}, {4194304000, 23}, {UINT64_MAX, 23},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rfs_view_counters counters = {0};
        rfs_view_count_read(&counters, 1, 1, cases[i].nanoseconds);
        for (unsigned k = 0; k < RESHARD_LATENCIES; k++)
            assert_int_equal(atomic_load(&counters.latency[k]), k == cases[i].bucket);
        assert_int_equal(atomic_load(&counters.nanoseconds), cases[i].nanoseconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_asked_and_replied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failures, set_up, tear_down),
        cmocka_unit_test(test_buckets),
    };
    return cmocka_run_group_tests_name("statistics", tests, NULL, NULL);
}
