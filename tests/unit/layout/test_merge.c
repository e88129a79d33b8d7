/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy files of several stages against the file that MindSpore merged of them, and what is
 * refused.
 */
#include "support.h"

#include "layout/stages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int add(struct rfs_stages *merge, const char *name, const struct text *text,
               struct rfs_error *err)
{
    return rfs_stages_add(merge, name, text->data, text->n, err);
}

static struct rfs_stages *new_merge(void)
{
    struct rfs_stages *merge = NULL;

    assert_int_equal(rfs_stages_new("folder", &merge, NULL), 0);
    return merge;
}

static void assert_same_strategy(const struct rfs_strategy *a, const struct rfs_strategy *b)
{
    assert_int_equal(rfs_strategy_stages(a), rfs_strategy_stages(b));
    assert_int_equal(rfs_strategy_devices(a), rfs_strategy_devices(b));
    assert_int_equal(rfs_strategy_count(a), rfs_strategy_count(b));
    for (size_t i = 0; i < rfs_strategy_count(a); i++) {
        const ptrdiff_t at = rfs_strategy_find(b, rfs_strategy_param(a, i));
        assert_true(at >= 0);
        for (uint32_t stage = 0; stage < rfs_strategy_stages(a); stage++) {
            const struct rfs_layout *x = rfs_strategy_layout(a, i, stage);
            const struct rfs_layout *y = rfs_strategy_layout(b, (size_t)at, stage);
            assert_int_equal(x == NULL, y == NULL);
            if (x == NULL)
                continue;
            assert_same_layout(x, y);
            assert_int_equal(x->n_expanded, y->n_expanded);
            assert_memory_equal(x->expanded, y->expanded, sizeof x->expanded);
        }
    }
}

static void expect_merged(const char *const *files, size_t n, const char *merged)
{
    struct rfs_strategy *strategy = NULL, *wanted = parse_fixture(merged);
    struct rfs_stages *merge = new_merge();
    struct rfs_error err = {0};

    for (size_t i = 0; i < n; i++) {
        struct text text = read_fixture(files[i]);
        if (add(merge, files[i], &text, &err) != 0)
            fail_msg("%s", err.text);
        text_free(&text);
    }
    if (rfs_stages_finish(merge, &strategy, &err) != 0)
        fail_msg("%s", err.text);
    rfs_stages_free(merge); /* what came out stands alone */
    assert_same_strategy(strategy, wanted);
    assert_string_equal(rfs_strategy_name(strategy), "folder");
    rfs_strategy_free(strategy);
    rfs_strategy_free(wanted);
}

static void as_mindspore_merges(void **unused)
{
#define PB(stage) "strategies/pipe8_ckpt/s_" #stage ".ckpt"
#define JS(stage) "strategies/pipe8_json/s_" #stage ".json"
    (void)unused;
    expect_merged((const char *const[]){PB(0), PB(1)}, 2, "strategies/pipe8.ckpt");
    expect_merged((const char *const[]){PB(1), PB(0)}, 2, "strategies/pipe8.ckpt");
    expect_merged((const char *const[]){PB(1), PB(0), PB(0), PB(1)}, 4, "strategies/pipe8.ckpt");
    expect_merged((const char *const[]){JS(0), JS(1)}, 2, "strategies/pipe8.json");
    expect_merged((const char *const[]){JS(1), JS(1), JS(0)}, 3, "strategies/pipe8.json");
    expect_merged((const char *const[]){PB(0)}, 1, "strategies/pipe8_ckpt/s_0.ckpt");
}

/* The compiler lists what two stages share in both files, and each stage cuts it in its own way. */
static void each_stage_keeps_its_own_layout(void **unused)
{
    static const char *const files[] = {"strategies/shared8_ckpt/s_0.ckpt",
                                        "strategies/shared8_ckpt/s_1.ckpt"};
    struct rfs_stages *merge = new_merge();
    struct rfs_strategy *strategy = NULL;

    (void)unused;
    for (int i = 0; i < 2; i++) {
        struct text text = read_fixture(files[i]);
        assert_int_equal(add(merge, files[i], &text, NULL), 0);
        text_free(&text);
    }
    assert_int_equal(rfs_stages_finish(merge, &strategy, NULL), 0);
    rfs_stages_free(merge);
    assert_int_equal(rfs_strategy_count(strategy), 3);
    const ptrdiff_t at = rfs_strategy_find(strategy, "network.e.w");
    assert_true(at >= 0);
    const struct rfs_layout *first = rfs_strategy_layout(strategy, (size_t)at, 0);
    const struct rfs_layout *last = rfs_strategy_layout(strategy, (size_t)at, 1);
    assert_int_equal(first->map[0], 1);
    assert_int_equal(last->map[0], 0);
    rfs_strategy_free(strategy);
}

/* A file of one stage: SPECS, and a strategy item that names the stage unless it is negative. */
static struct text stage_file(int64_t stage, const struct spec *specs, size_t n)
{
    struct text out = {0}, item = {0}, name = {0}, inner = {0};

    write_protobuf(&out, specs, n);
    if (stage < 0)
        return out;
    put_number(&inner, 1, stage);
    put(&name, "MatMul-op0", 10);
    put_field(&item, 1, &name);
    put_field(&item, 2, &inner);
    put_field(&out, 2, &item);
    text_free(&item);
    text_free(&name);
    text_free(&inner);
    return out;
}

static const struct spec ab[] = {
    {.name = "a", .n_dev = 1, .dev = {4}, .ndim = 1, .axis = {{1, {0}}}},
    {.name = "b", .n_dev = 2, .dev = {2, 2}, .ndim = 2}};
static const struct spec ba[] = {
    {.name = "b", .n_dev = 2, .dev = {2, 2}, .ndim = 2},
    {.name = "a", .n_dev = 1, .dev = {4}, .ndim = 1, .axis = {{1, {0}}}}};
static const struct spec other_a[] = {
    {.name = "a", .n_dev = 1, .dev = {4}, .ndim = 1},
    {.name = "b", .n_dev = 2, .dev = {2, 2}, .ndim = 2},
};
static const struct spec only_a[] = {
    {.name = "a", .n_dev = 1, .dev = {4}, .ndim = 1, .axis = {{1, {0}}}}};

static void layouts_of_a_stage_may_come_in_any_order(void **unused)
{
    struct text first = stage_file(0, ab, 2), again = stage_file(0, ba, 2);
    struct rfs_stages *merge = new_merge();
    struct rfs_strategy *strategy = NULL;

    (void)unused;
    assert_int_equal(add(merge, "x", &first, NULL), 0);
    assert_int_equal(add(merge, "y", &again, NULL), 0);
    assert_int_equal(rfs_stages_finish(merge, &strategy, NULL), 0);
    assert_int_equal(rfs_strategy_count(strategy), 2);
    rfs_strategy_free(strategy);
    rfs_stages_free(merge);
    text_free(&first);
    text_free(&again);
}

struct file {
    const char *name;
    struct text text;
};

/* All but the last file are taken, the last is refused, or the whole when WHAT is of "folder". */
static void expect_conflict(struct file *files, size_t n, const char *what)
{
    struct rfs_stages *merge = new_merge();
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = add(merge, files[i].name, &files[i].text, &err);
    if (rc == 0)
        rc = rfs_stages_finish(merge, &strategy, &err);
    assert_int_equal(rc, -EINVAL);
    assert_null(strategy);
    if (strncmp(err.text, what, strlen(what)) != 0 || strchr(err.text, '\n') != NULL)
        fail_msg("wanted \"%s\", got \"%s\"", what, err.text);
    rfs_stages_free(merge);
    for (size_t i = 0; i < n; i++)
        text_free(&files[i].text);
}

static void what_does_not_go_together_is_refused(void **unused)
{
    static const struct spec merged[] = {
        {.name = "0-a", .n_dev = 1, .dev = {4}, .ndim = 1, .axis = {{1, {0}}}}};
    static const struct spec larger[] = {{.name = "a", .n_dev = 1, .dev = {8}, .ndim = 1}};
    struct text json = read_fixture(JS(1));

    (void)unused;
    expect_conflict((struct file[]){{"x", stage_file(0, ab, 2)}, {"y", stage_file(0, other_a, 2)}},
                    2, "y: parameter 'a': stage 0 is given twice: x is of the same stage and cuts");
    expect_conflict((struct file[]){{"x", stage_file(0, ab, 2)}, {"y", stage_file(0, only_a, 1)}},
                    2, "y: parameter 'b': stage 0 is given twice");
    expect_conflict((struct file[]){{"x", stage_file(0, only_a, 1)}, {"y", stage_file(0, ab, 2)}},
                    2, "y: parameter 'b': stage 0 is given twice");
    expect_conflict((struct file[]){{"x", stage_file(0, ab, 2)}, {"y", stage_file(2, ab, 2)}}, 2,
                    "folder: it has a stage 2 but no stage 1; try: the files of all stages");
    expect_conflict((struct file[]){{"x", stage_file(1, ab, 2)}}, 1,
                    "folder: it has a stage 1 but no stage 0");
    expect_conflict((struct file[]){{"x", stage_file(0, merged, 1)}, {"y", stage_file(1, ab, 2)}},
                    2, "x: it is a merge of several stages already");
    expect_conflict((struct file[]){{"x", stage_file(0, ab, 2)}, {"s.json", json}}, 2,
                    "s.json: some strategy files of the stages are JSON");
    expect_conflict((struct file[]){{"x", stage_file(-1, ab, 2)}}, 1,
                    "x: it has no strategy items");
    expect_conflict((struct file[]){{"x", stage_file(0, NULL, 0)}}, 1,
                    "x: the strategy is empty: it has no parameter layouts");
    expect_conflict((struct file[]){{"x", stage_file(INT64_C(0xffffffff), ab, 2)}}, 1,
                    "x: the stage of its first strategy item, 4294967295, is too large");
    expect_conflict((struct file[]){{"x", stage_file(0, ab, 2)}, {"y", stage_file(1, larger, 1)}},
                    2, "folder: parameter 'a': its device matrix has 8 devices in stage 1");
    expect_conflict((struct file[]){{"x", stage_file(0, ab, 2)}, {"y", (struct text){0}}}, 2,
                    "y: the strategy file is empty");
    expect_conflict(NULL, 0, "folder: the strategy is empty");
}

/* Every rank of a pipeline may have saved its own: 64 stages, 16 files each, in hash order. */
static void many_files(void **unused)
{
    struct rfs_stages *merge = new_merge();
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};
    char name[32];

    (void)unused;
    for (int file = 0; file < 1024; file++) {
        struct text text = stage_file(file % 64, file / 64 % 2 ? ab : ba, 2);
        snprintf(name, sizeof name, "rank_%d", file);
        if (add(merge, name, &text, &err) != 0)
            fail_msg("%s", err.text);
        text_free(&text);
    }
    assert_int_equal(rfs_stages_finish(merge, &strategy, &err), 0);
    assert_int_equal(rfs_strategy_stages(strategy), 64);
    assert_int_equal(rfs_strategy_layouts(strategy), 2);
    rfs_strategy_free(strategy);
    rfs_stages_free(merge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_mindspore_merges),
        cmocka_unit_test(each_stage_keeps_its_own_layout),
        cmocka_unit_test(layouts_of_a_stage_may_come_in_any_order),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(many_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
