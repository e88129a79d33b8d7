/* SPDX-License-Identifier: Apache-2.0 */
/* Views by rules, given in the option or in a file. The trees are those of support.h. */
#include "tests/unit/view/support.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void keep_line(void *ctx, enum reshard_level level, const char *line)
{
    struct log_lines *lines = ctx;
    const size_t used = strlen(lines->text);
    snprintf(lines->text + used, sizeof lines->text - used, "%d:%s\n", (int)level, line);
}

static int open_options(struct fixture *f, const char *options)
{
    const reshard_config config = {
        .struct_size = sizeof config, .options = options, .log = keep_line, .log_ctx = &f->lines};

    f->err = (reshard_error){.struct_size = sizeof f->err};
    return reshard_open(tree_path(f->root, "src"), &config, &f->view, &f->err);
}

static void expect_open(struct fixture *f, const char *options)
{
    if (open_options(f, options))
        fail_msg("%s", f->err.message);
}

static void expect_refused(struct fixture *f, const char *options, int code, bool usage,
                           const char *what)
{
    assert_int_equal(open_options(f, options), code);
    assert_int_equal(f->err.usage, usage);
    if (!strstr(f->err.message, what))
        fail_msg("wanted \"%s\", got \"%s\"", what, f->err.message);
}

/* Destination rank RANK of two, with the parameters in the order of the files. */
static void expect_in_file_order(struct fixture *f, unsigned rank)
{
    struct bytes expected = {0};
    unsigned char w[16];
    unsigned char b[4];

    for (unsigned row = 0; row < 8; row++)
        fill(w + row * 2, "w", row * 4 + rank * 2, 2);
    fill(b, "b", 0, 4);
    ckpt_tensor(&expected, "steps", "Int8", 0, NULL, "*", 1);
    ckpt_tensor(&expected, "w", "Int8", 2, (uint64_t[]){8, 2}, w, 16);
    ckpt_tensor(&expected, "b", "UInt8", 1, (uint64_t[]){4}, b, 4);
    expect_file(f, rank, &expected);
    bytes_free(&expected);
}

static void test_rules_on_both_sides(void **state)
{
    struct fixture *f = *state;

    expect_open(f, "src_ranks=4,src_rules=w: axis 0 over all;*: whole,"
                   "dst_ranks=2,dst_rules=w: axis -1 over all;*: whole");
    expect_in_file_order(f, 0);
    expect_in_file_order(f, 1);
    assert_string_equal(f->lines.text, "");
}

static void test_rules_for_the_parameters_of_a_strategy(void **state)
{
    struct fixture *f = *state;
    char options[8192];
    reshard_statistics statistics = {.struct_size = sizeof statistics};

    snprintf(options, sizeof options,
             "src_strategy=%s,dst_ranks=2,dst_rules=w: axis 1 over all;*: whole",
             tree_path(f->root, "src.json"));
    expect_open(f, options);
    reshard_get_statistics(f->view, &statistics);
    assert_int_equal(statistics.source_opens, 0); /* names come from the strategy */
    for (unsigned rank = 0; rank < 2; rank++) {
        struct bytes expected = {0};
        expected_rank(&expected, rank, 42);
        expect_file(f, rank, &expected);
        bytes_free(&expected);
    }
}

static void test_rules_in_a_file(void **state)
{
    static const char text[] = "# comment; with a semicolon\nw: axis 1 over all\n*: whole\n";
    struct fixture *f = *state;
    char options[8192];

    tree_write(f->root, "dst: rules.txt", text, sizeof text - 1);
    snprintf(options, sizeof options,
             "src_ranks=4,src_rules=w: axis 0 over all;*: whole,"
             "dst_ranks=2,dst_rules=%s",
             tree_path(f->root, "dst: rules.txt"));
    expect_open(f, options);
    expect_in_file_order(f, 1);
    reshard_close(f->view);

    tree_write(f->root, "dst: rules.txt", text, sizeof text - 3);
    expect_refused(f, options, -EINVAL, false, "/dst: rules.txt: line 3: '");
}

static void test_a_path_that_is_not_there(void **state)
{
    struct fixture *f = *state;

    expect_refused(f, "src_ranks=4,src_rules=/nowhere/rules.txt", -ENOENT, false,
                   "/nowhere/rules.txt: cannot be read: No such file or directory");
    expect_refused(f, "src_ranks=4,src_rules=tp=4", -ENOENT, false,
                   "tp=4: cannot be read: No such file or directory; try: a file of rules, or "
                   "rules such as '*: axis 0 over all', or degrees such as tp4");
    expect_refused(f, "src_ranks=4,src_rules=/", -EISDIR, false, "is a folder");
}

static void test_even_slices_are_merged(void **state)
{
    struct fixture *f = *state;
    struct bytes expected = {0};
    unsigned char w[32];
    unsigned char b[16];

    expect_open(f, "src_ranks=4,src_rules=steps: whole;*: axis 0 over all");
    fill(w, "w", 0, sizeof w);
    for (unsigned rank = 0; rank < 4; rank++)
        fill(b + rank * 4, "b", 0, 4);
    ckpt_tensor(&expected, "steps", "Int8", 0, NULL, "*", 1);
    ckpt_tensor(&expected, "w", "Int8", 2, (uint64_t[]){8, 4}, w, sizeof w);
    ckpt_tensor(&expected, "b", "UInt8", 1, (uint64_t[]){16}, b, sizeof b);
    expect_file(f, 0, &expected);
    bytes_free(&expected);
}

static void test_unused_rules_are_told(void **state)
{
    struct fixture *f = *state;

    expect_open(f, "src_ranks=4,src_rules=w: axis 0 over all;v: whole;*: whole");
    assert_string_equal(f->lines.text, "1:src_rules: line 2: no parameter takes the rule 'v'\n");
}

/* Found at opening where the headers are read for the names anyway. */
static void test_misfits_are_found_at_opening(void **state)
{
    struct fixture *f = *state;

    expect_refused(
        f, "src_ranks=4,src_rules=*: axis 0 over all", -EINVAL, false,
        "src_rules: line 1: parameter 'steps': the rule cuts axis 0 of a tensor that has "
        "0 axes; try: 'steps: whole' before that rule");
    expect_refused(
        f, "src_ranks=4,src_rules=w: axis 0 over all;b: whole", -EINVAL, false,
        "src_rules: parameter 'steps': no rule matches it; try: a last rule \"*: whole\"");
    expect_refused(
        f,
        "src_ranks=4,src_rules=w: axis 0 over all;*: whole,dst_ranks=3,"
        "dst_rules=w: axis 0 over all;*: whole",
        -EINVAL, false,
        "dst_rules: line 1: parameter 'w': the checkpoint holds a tensor of [8, 4], and the "
        "strategy cuts axis 0 into 3 pieces");
}

static void test_misfits_with_a_strategy_are_found_at_stat(void **state)
{
    struct fixture *f = *state;
    char options[8192];
    reshard_stat st;

    snprintf(options, sizeof options,
             "src_strategy=%s,dst_ranks=3,dst_rules=w: axis 0 over all;"
             "*: whole",
             tree_path(f->root, "src.json"));
    expect_open(f, options);
    assert_int_equal(stat_rank(f, 0, &st), -EINVAL);
    assert_non_null(strstr(f->err.message, "dst_rules: line 1: parameter 'w'"));
}

static void test_an_unsharded_source(void **state)
{
    struct fixture *f = *state;
    struct bytes file = {0};
    struct bytes expected = {0};
    unsigned char w[32];

    tree_remove(f->root);
    f->root = tree_new();
    fill(w, "w", 0, sizeof w);
    ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){4, 8}, w, sizeof w);
    /* A string, which no rule has to match. */
    ckpt_tensor(&file, "note", "str", 1, (uint64_t[]){0}, "h\0\0\0i\0\0\0", 8);
    tree_write(f->root, "src/rank_0/net.ckpt", file.data, file.n);
    expect_refused(f, "dst_ranks=2,dst_rules=like source", -EINVAL, false,
                   "dst_rules: line 1: there is no source strategy to be like");
    expect_open(f, "dst_ranks=4,dst_rules=axes a=2 b=2;w: axis 0 over b a");
    ckpt_tensor(&expected, "w", "Int8", 2, (uint64_t[]){1, 8}, w + 16, 8);
    ckpt_tensor(&expected, "note", "str", 1, (uint64_t[]){0}, "h\0\0\0i\0\0\0", 8);
    expect_file(f, 1, &expected);
    bytes_free(&expected);
    bytes_free(&file);
}

static void test_like_source_with_other_replicas(void **state)
{
    struct fixture *f = *state;
    char options[8192];
    reshard_summary summary = {.struct_size = sizeof summary};

    replicate(f, (const unsigned char *)"****");
    snprintf(options, sizeof options,
             "src_strategy=%s,dst_ranks=6,dst_rules=like source with dp 2 -> 3",
             tree_path(f->root, "src.json"));
    expect_open(f, options);
    reshard_summarize(f->view, &summary);
    assert_int_equal(summary.target_ranks, 6);
    for (unsigned rank = 0; rank < 6; rank++) {
        struct bytes expected = {0};
        unsigned char w[4];
        fill(w, "w", rank % 2 * 4, 4);
        ckpt_tensor(&expected, "w", "Int8", 1, (uint64_t[]){4}, w, 4);
        ckpt_tensor(&expected, "steps", "Int8", 0, NULL, "*", 1);
        expect_file(f, rank, &expected);
        bytes_free(&expected);
    }
}

/* Rules say nothing of pipeline stages, so what they are for is never part of one. */
static void test_rules_make_no_part_of_a_stage(void **state)
{
    struct fixture *f = *state;
    char options[8192];

    write_strategy(
        f->root, "dst.json",
        LAYOUT("w", "[2]", "[-1, 0]", "[8, 4]") ", " LAYOUT("b", "[2]", "[-1]", "[4]") ", " LAYOUT(
            "steps", "[2]", "[]", "[]") ", " LAYOUT("x", "[2]", "[-1]", "[4]"));
    snprintf(options, sizeof options,
             "src_ranks=4,src_rules=w: axis 0 over all;*: whole,dst_strategy=%s",
             tree_path(f->root, "dst.json"));
    expect_open(f, options);
    expect_in_file_order(f, 1);
}

/* Rules go by the names of the source, even where another parameter is shown by that name. */
static void test_rules_and_other_names(void **state)
{
    static const char map[] = "{\"w\": \"b\", \"b\": \"w\"}";
    struct fixture *f = *state;
    struct bytes expected = {0};
    char options[8192];
    unsigned char w[16];
    unsigned char b[4];

    tree_write(f->root, "map.json", map, sizeof map - 1);
    snprintf(options, sizeof options,
             "src_strategy=%s,dst_ranks=2,dst_rules=w: axis 1 over all;b: whole,names=%s",
             tree_path(f->root, "src.json"), tree_path(f->root, "map.json"));
    expect_open(f, options);
    for (unsigned row = 0; row < 8; row++)
        fill(w + row * 2, "w", row * 4 + 2, 2);
    fill(b, "b", 0, 4);
    ckpt_tensor(&expected, "b", "Int8", 2, (uint64_t[]){8, 2}, w, 16);
    ckpt_tensor(&expected, "w", "UInt8", 1, (uint64_t[]){4}, b, 4);
    ckpt_tensor(&expected, "steps", "Int8", 0, NULL, "*", 1);
    expect_file(f, 1, &expected);
    bytes_free(&expected);
}

static void test_a_lost_first_rank(void **state)
{
    struct fixture *f = *state;

    replicate(f, (const unsigned char *)"****");
    assert_int_equal(remove(tree_path(f->root, "src/rank_0/net-1_2.ckpt")), 0);
    expect_open(f, "src_ranks=4,src_rules=axes dp=2 tp=2;w: axis 0 over tp;*: whole");
    struct bytes expected = {0};
    unsigned char w[8];
    fill(w, "w", 0, 8);
    ckpt_tensor(&expected, "w", "Int8", 1, (uint64_t[]){8}, w, 8);
    ckpt_tensor(&expected, "steps", "Int8", 0, NULL, "*", 1);
    expect_file(f, 0, &expected);
    bytes_free(&expected);
}

static void write_two(struct fixture *f, unsigned rank, const char *own)
{
    struct bytes file = {0};
    unsigned char content[4];
    char path[64];

    fill(content, own, 0, 4);
    ckpt_tensor(&file, own, "Int8", 1, (uint64_t[]){4}, content, 4);
    fill(content, "w", rank * 4, 4);
    ckpt_tensor(&file, "w", "Int8", 1, (uint64_t[]){4}, content, 4);
    snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
    tree_write(f->root, path, file.data, file.n);
    bytes_free(&file);
}

/* remove_redundancy: each replicated parameter is in one rank's file. */
static void test_names_from_all_ranks_where_they_differ(void **state)
{
    static const char *const own[] = {"a", "b", "c"};
    struct fixture *f = *state;
    struct bytes expected = {0};
    unsigned char content[12];

    tree_remove(f->root);
    f->root = tree_new();
    for (unsigned rank = 0; rank < 3; rank++)
        write_two(f, rank, own[rank]);
    expect_open(f, "src_ranks=3,src_rules=w: axis 0 over all;[a-c]: whole");
    for (int rank = 2; rank >= 0; rank--) {
        fill(content, own[rank], 0, 4);
        ckpt_tensor(&expected, own[rank], "Int8", 1, (uint64_t[]){4}, content, 4);
        fill(content, "w", 0, 12);
        if (rank == 2)
            ckpt_tensor(&expected, "w", "Int8", 1, (uint64_t[]){12}, content, 12);
    }
    expect_file(f, 0, &expected);
    bytes_free(&expected);
}

/* The first rank keeps less than the last, and only one between them has "b". */
static void test_names_where_the_first_rank_keeps_less(void **state)
{
    struct fixture *f = *state;
    struct bytes files[3] = {{0}}, expected = {0};
    unsigned char content[12];

    tree_remove(f->root);
    f->root = tree_new();
    fill(content, "w", 0, 12);
    for (unsigned rank = 0; rank < 3; rank++) {
        char path[64];
        ckpt_tensor(&files[rank], "w", "Int8", 1, (uint64_t[]){4}, content + 4 * rank, 4);
        if (rank > 0)
            ckpt_tensor(&files[rank], rank == 1 ? "b" : "c", "Int8", 1, (uint64_t[]){4}, "same", 4);
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, files[rank].data, files[rank].n);
        bytes_free(&files[rank]);
    }
    expect_open(f, "src_ranks=3,src_rules=w: axis 0 over all;b: whole;c: whole");
    ckpt_tensor(&expected, "w", "Int8", 1, (uint64_t[]){12}, content, 12);
    ckpt_tensor(&expected, "c", "Int8", 1, (uint64_t[]){4}, "same", 4);
    ckpt_tensor(&expected, "b", "Int8", 1, (uint64_t[]){4}, "same", 4);
    expect_file(f, 0, &expected);
    assert_null(strstr(f->lines.text, "no parameter"));
    bytes_free(&expected);
}

/* The first rank and the last list the same, one between them does not. */
static void test_a_tensor_that_rules_were_not_asked_about(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    tree_remove(f->root);
    f->root = tree_new();
    for (unsigned rank = 0; rank < 3; rank++)
        write_two(f, rank, rank == 1 ? "b" : "a");
    expect_open(f, "src_ranks=3,src_rules=w: axis 0 over all;*: whole");
    assert_int_equal(stat_rank(f, 0, &st), -EINVAL);
    assert_non_null(strstr(f->err.message,
                           "parameter 'b': is not in the first rank's file, from which the source "
                           "rules took their parameters; try: checkpoints of one save"));
}

static void test_options_that_belong_together(void **state)
{
    struct fixture *f = *state;

    expect_refused(f, "src_rules=*: whole", -EINVAL, true,
                   "nothing says how many ranks src_rules is for; try: src_ranks=8, or a line");
    expect_refused(f, "src_strategy=x,dst_ranks=4", -EINVAL, true,
                   "option dst_ranks needs dst_rules as well; try: dst_rules=FILE, or "
                   "dst_rules=tp4 for the models of convert=");
    expect_refused(f, "src_strategy=x,src_rules=*: whole,src_ranks=4", -EINVAL, true,
                   "both src_strategy and src_rules are given; try: only one of them");
    expect_refused(f, "dst_strategy=x,dst_rules=*: whole,dst_ranks=4", -EINVAL, true,
                   "both dst_strategy and dst_rules are given");
    expect_refused(f, "src_rules=*: whole,src_ranks=0", -EINVAL, true, "option src_ranks=0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rules_on_both_sides, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rules_for_the_parameters_of_a_strategy, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_rules_in_a_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_path_that_is_not_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_even_slices_are_merged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unused_rules_are_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_misfits_are_found_at_opening, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_misfits_with_a_strategy_are_found_at_stat, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_an_unsharded_source, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_like_source_with_other_replicas, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rules_make_no_part_of_a_stage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rules_and_other_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lost_first_rank, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_from_all_ranks_where_they_differ, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_names_where_the_first_rank_keeps_less, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_tensor_that_rules_were_not_asked_about, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_options_that_belong_together, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("view: rules", tests, NULL, NULL);
}
