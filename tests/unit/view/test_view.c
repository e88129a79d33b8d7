/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of small trees whose every byte is written down in support.c: the tree and its attributes.
 */
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

static void test_tensors_without_bytes_are_left_out(void **state)
{
    struct fixture *f = *state;

    write_strategy(f->root, "src.json", SRC_ITEMS ", " LAYOUT("e", "[4]", "[-1, -1]", "[0, 4]"));
    write_strategy(f->root, "dst.json", DST_ITEMS ", " LAYOUT("e", "[2]", "[-1, -1]", "[0, 4]"));
    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        unsigned char part[8];
        const unsigned char steps = 42;
        char path[64];
        ckpt_tensor(&file, "e", "Float32", 2, (uint64_t[]){0, 4}, part, 0);
        ckpt_tensor(&file, "steps", "Int8", 0, NULL, &steps, 1);
        fill(part, "w", rank * 8, 8);
        ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){2, 4}, part, 8);
        ckpt_tensor(&file, "unlisted", "Int8", 1, (uint64_t[]){0}, part, 0);
        fill(part, "b", 0, 4);
        ckpt_tensor(&file, "b", "UInt8", 1, (uint64_t[]){4}, part, 4);
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, file.data, file.n);
        bytes_free(&file);
    }
    test_files_are_the_transformed_ones(state);
}

static void test_unknown_names(void **state)
{
    struct fixture *f = *state;
    reshard_stat st = {.struct_size = sizeof st};
    reshard_dirent entry = {.struct_size = sizeof entry};
    uint64_t id;

    open_view(f);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "rank_2", &id), -ENOENT);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "rank_00", &id), -ENOENT);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "rank_+1", &id), -ENOENT);
    assert_int_equal(reshard_lookup(f->view, 2, "checkpoint_1.ckpt", &id), -ENOENT);
    assert_int_equal(reshard_lookup(f->view, 3, "x", &id), -ENOTDIR);
    assert_int_equal(reshard_lookup(f->view, 99, "x", &id), -ENOENT);
    assert_int_equal(reshard_list(f->view, 3, 0, &entry), -ENOTDIR);
    assert_int_equal(reshard_list(f->view, 99, 0, &entry), -ENOENT);
    assert_int_equal(reshard_list(f->view, 0, 0, &entry), -ENOENT);
    assert_true(reshard_is_ready(f->view, 99)); /* its failure reads nothing */
    assert_int_equal(reshard_getattr(f->view, 99, &st, NULL), -ENOENT);
    assert_int_equal(reshard_pread(f->view, 2, &st, 1, 0), -EISDIR);
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

/* rank_1 with "steps" and one of the other two alone. */
static void write_without(struct fixture *f, const char *lacking)
{
    struct bytes file = {0};
    unsigned char data[8];

    ckpt_tensor(&file, "steps", "Int8", 0, NULL, "\x2a", 1);
    fill(data, "w", 8, 8);
    if (*lacking != 'w')
        ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){2, 4}, data, 8);
    fill(data, "b", 0, 4);
    if (*lacking != 'b')
        ckpt_tensor(&file, "b", "UInt8", 1, (uint64_t[]){4}, data, 4);
    tree_write(f->root, "src/rank_1/net-1_2.ckpt", file.data, file.n);
    bytes_free(&file);
}

static void test_a_parameter_that_one_rank_lacks(void **state)
{
    struct fixture *f = *state;

    write_without(f, "b");
    open_view(f);
    for (unsigned rank = 0; rank < 2; rank++) {
        struct bytes expected = {0};
        expected_rank(&expected, rank, 42);
        expect_file(f, rank, &expected);
        bytes_free(&expected);
    }
    assert_non_null(strstr(f->lines.text, "pipeline stage 0 do not list the same parameters"));
}

static void test_a_hole_that_nobody_fills(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    write_without(f, "w");
    open_view(f);
    assert_int_equal(stat_rank(f, 0, &st), -EINVAL);
    assert_non_null(strstr(f->err.message, "parameter 'w'"));
    assert_non_null(strstr(f->err.message, "the slice of rank_1"));
    assert_non_null(strstr(f->err.message, "a hole that no replica fills"));
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

struct progress {
    uint64_t calls, done, total;
};

static void note_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *progress = ctx;

    assert_int_equal(done, ++progress->calls);
    progress->done = done;
    progress->total = total;
}

static void test_a_check_plans_every_rank(void **state)
{
    struct fixture *f = *state;
    struct progress progress = {0};

    open_view(f);
    assert_int_equal(reshard_check(f->view, note_progress, &progress, NULL), 0);
    assert_int_equal(progress.done, 2);
    assert_int_equal(progress.total, 2);
    assert_true(reshard_is_ready(f->view, 3));
    assert_true(reshard_is_ready(f->view, 5));
    assert_int_equal(reshard_check(f->view, NULL, NULL, NULL), 0);
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

static void test_a_check_tells_each_failure_once(void **state)
{
    struct fixture *f = *state;
    struct progress progress = {0};

    tree_write(f->root, "src/rank_0/net-1_2.ckpt", "x", 1);
    tree_write(f->root, "src/rank_1/net-1_2.ckpt", "x", 1);
    open_view(f);
    f->err = (reshard_error){.struct_size = sizeof f->err};
    assert_int_equal(reshard_check(f->view, note_progress, &progress, &f->err), -EINVAL);
    assert_int_equal(progress.calls, 2);
    assert_int_equal(f->err.code, -EINVAL);
    assert_int_equal(f->err.usage, 0);
    assert_int_equal(count(f->lines.text, "src/rank_0/net-1_2.ckpt"), 1);
    assert_non_null(strstr(f->err.message, "src/rank_1/net-1_2.ckpt"));
    assert_null(strstr(f->lines.text, "src/rank_1/net-1_2.ckpt"));
}

static void test_strategies_are_checked_by_one_rank(void **state)
{
    struct fixture *f = *state;

    tree_write(f->root, "src/rank_1/net-1_2.ckpt", "x", 1);
    open_view(f);
    assert_int_equal(reshard_check_strategies(f->view, &f->err), 0);
    assert_false(reshard_is_ready(f->view, 3));
    reshard_close(f->view);

    write_strategy(f->root, "dst.json", LAYOUT("w", "[3]", "[-1, 0]", "[8, 6]"));
    open_view(f);
    f->err = (reshard_error){.struct_size = sizeof f->err};
    assert_int_equal(reshard_check_strategies(f->view, NULL), -EINVAL);
    assert_int_equal(reshard_check_strategies(f->view, &f->err), -EINVAL);
    assert_non_null(strstr(f->err.message, "4 is not divisible by 3"));
}

static void test_summary(void **state)
{
    struct fixture *f = *state;
    reshard_summary sum = {.struct_size = sizeof sum};

    open_view(f);
    reshard_summarize(f->view, &sum);
    assert_int_equal(sum.source_ranks, 4);
    assert_int_equal(sum.source_stages, 1);
    assert_int_equal(sum.target_ranks, 2);
    assert_int_equal(sum.target_stages, 1);
    assert_int_equal(sum.parameters, 2);
}

/* What a caller that was built against an older or a newer header passes. */
static void test_structs_of_another_size(void **state)
{
    struct fixture *f = *state;
    reshard_summary sum = {.struct_size = offsetof(reshard_summary, target_ranks),
                           .target_ranks = 77};
    struct {
        reshard_statistics known;
        uint64_t later;
    } stats = {.known.struct_size = sizeof stats, .later = 88};

    open_view(f);
    reshard_summarize(f->view, &sum);
    assert_int_equal(sum.source_ranks, 4);
    assert_int_equal(sum.target_ranks, 77);
    free(read_rank(f, 0, &(size_t){0}));
    reshard_get_statistics(f->view, &stats.known);
    assert_int_equal(stats.known.struct_size, sizeof stats);
    assert_int_equal(stats.known.reads, 1);
    assert_int_equal(stats.later, 88);
}

static void test_success_leaves_the_error_alone(void **state)
{
    struct fixture *f = *state;
    reshard_stat st = {.struct_size = sizeof st};

    open_view(f);
    strcpy(f->err.message, "as before");
    assert_int_equal(reshard_getattr(f->view, 3, &st, &f->err), 0);
    assert_int_equal(reshard_check(f->view, NULL, NULL, &f->err), 0);
    assert_string_equal(f->err.message, "as before");
    assert_int_equal(f->err.code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files_are_the_transformed_ones, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_listing_opens_no_source, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tensors_without_bytes_are_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unknown_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_copied_values_come_from_the_rank_itself, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_slices_of_another_shape, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_parameter_that_one_rank_lacks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_hole_that_nobody_fills, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_more_folders_than_ranks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_check_plans_every_rank, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_check_tells_each_failure_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_strategies_are_checked_by_one_rank, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_summary, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_structs_of_another_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_success_leaves_the_error_alone, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
