/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks whose folder or file is missing. */
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
        strstr(f->lines.text, "rank_2 is missing; its slices are read from a replica, rank_0");
    assert_non_null(once);
    assert_null(strstr(once + 1, "rank_2 is missing; what"));
    bytes_free(&expected);
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
    /* Reading says the same errno, without the reason. */
    unsigned char byte;
    reshard_reader *reader;
    assert_int_equal(reshard_pread(f->view, file_id(f, 1), &byte, 1, 0), -ENOENT);
    assert_int_equal(reshard_reader_open(f->view, file_id(f, 1), &reader), -ENOENT);
    assert_null(reader);
    assert_false(reshard_is_ready(f->view, file_id(f, 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_lost_rank_without_replica, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fewer_folders_than_ranks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lost_rank_with_a_replica, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lost_value_that_nobody_proves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lost_value_of_many_elements, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("view: lost ranks", tests, NULL, NULL);
}
