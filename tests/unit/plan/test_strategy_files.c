/* SPDX-License-Identifier: Apache-2.0 */
/* What an option that names strategies may name: a file, a folder, a list. */
#include "plan/strategy_files.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/tree.h"

static char *root;

static int set_up(void **state)
{
    *state = NULL;
    root = tree_new();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tree_remove(root);
    return 0;
}

/* One parameter "w<stage>" of a stage. */
static void write_json(const char *path, unsigned stage)
{
    char text[512];
    const int n =
        snprintf(text, sizeof text,
                 "{\"parallel_strategy_item\":{\"op\":{\"stage\":%u}},\"parallel_layout_item\":{"
                 "\"w%u\":{\"dev_matrix\":[2],\"tensor_map\":[0],\"field\":0,"
                 "\"opt_weight_shard_step\":0,\"opt_weight_shard_size\":0}}}",
                 stage, stage);

    tree_write(root, path, text, (size_t)n);
}

/* Writes such a strategy in protobuf, of stage 0 or 1. */
static void write_protobuf(const char *path, unsigned stage)
{
    unsigned char text[] = {8,    2,    0x12, 9,    0x0a, 1,    'o',  0x12, 4, 8, 0, 0x12, 0, 0x1a,
                            0x16, 0x0a, 2,    'w',  0,    0x12, 0x10, 0x0a, 2, 8, 2, 0x12, 2, 8,
                            0,    0x1a, 0,    0x28, 0,    0x30, 0,    0x38, 0};

    text[10] = (unsigned char)stage;
    text[18] = (unsigned char)('0' + stage);
    tree_write(root, path, text, sizeof text);
}

static int read_list(const char *text, struct rfs_strategy **out, struct rfs_error *err)
{
    return rfs_plan_read_strategy(NULL, text, out, err);
}

static void expect_stages(const char *text, uint32_t stages)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};

    if (read_list(text, &strategy, &err) != 0)
        fail_msg("%s: %s", text, err.text);
    assert_int_equal(rfs_strategy_stages(strategy), stages);
    for (uint32_t i = 0; stages > 1 && i < stages; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%u", i);
        const ptrdiff_t at = rfs_strategy_find(strategy, name);
        assert_true(at >= 0);
        for (uint32_t s = 0; s < stages; s++)
            assert_int_equal(rfs_strategy_layout(strategy, (size_t)at, s) != NULL, s == i);
    }
    rfs_strategy_free(strategy);
}

static void expect_failure(const char *text, int code, const char *what)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};

    assert_int_equal(read_list(text, &strategy, &err), code);
    assert_null(strategy);
    if (strstr(err.text, what) == NULL || strchr(err.text, '\n'))
        fail_msg("wanted \"%s\", got \"%s\"", what, err.text);
}

static void folders(void **unused)
{
    (void)unused;
    write_json("j/b.json", 0);
    write_json("j/a.json", 1);
    write_json("j/.hidden.json", 7);
    tree_write(root, "j/README", "not a strategy", 14);
    assert_int_equal(mkdir(tree_path(root, "j/c.json"), 0700), 0);
    expect_stages(tree_path(root, "j"), 2);
    expect_stages(tree_path(root, "j/"), 2);
    /* One stage's file alone is as it always was, and so is a folder of nothing but the first's. */
    expect_stages(tree_path(root, "j/a.json"), 1);
    write_json("one/x.json", 0);
    expect_stages(tree_path(root, "one"), 1);
    write_protobuf("p/first", 0);
    write_protobuf("p/second", 1);
    expect_stages(tree_path(root, "p"), 2);
    /* Where some are named as MindSpore has it, the others are not strategies. */
    write_protobuf("q/s_0.ckpt", 0);
    write_protobuf("q/s_1.ckpt", 1);
    tree_write(root, "q/notes.txt", "not a strategy", 14);
    expect_stages(tree_path(root, "q"), 2);
}

static void lists(void **unused)
{
    char text[2048];

    (void)unused;
    write_json("a.json", 0);
    write_json("b:c.json", 1);
    write_json("more/d.json", 2);
    snprintf(text, sizeof text, "%s:%s:%s", tree_path(root, "b:c.json"), tree_path(root, "a.json"),
             tree_path(root, "more"));
    expect_stages(text, 3);
    write_json("x:y", 0);
    assert_int_equal(rename(tree_path(root, "x:y"), tree_path(root, "x:y.json")), 0);
    expect_stages(tree_path(root, "x:y.json"), 1);
}

static void what_is_no_set_of_strategies(void **unused)
{
    char text[2048];

    (void)unused;
    assert_int_equal(mkdir(tree_path(root, "empty"), 0700), 0);
    expect_failure(tree_path(root, "empty"), -ENOENT, "/empty: the folder holds no strategy files");
    expect_failure(tree_path(root, "none"), -ENOENT, "/none: cannot be read: No such file");
    write_json("mix/a.json", 0);
    write_protobuf("mix/b.ckpt", 1);
    expect_failure(tree_path(root, "mix"), -EINVAL, "are JSON and some protobuf");
    snprintf(text, sizeof text, "%s:", tree_path(root, "mix/a.json"));
    expect_failure(text, -EINVAL, "a path in the list of strategy files is empty");
    snprintf(text, sizeof text, "%s:%s", tree_path(root, "mix/a.json"), tree_path(root, "gone"));
    expect_failure(text, -ENOENT, "/gone: cannot be read: No such file");
    write_json("gap/a.json", 0);
    write_json("gap/b.json", 2);
    expect_failure(tree_path(root, "gap"), -EINVAL, "/gap: it has a stage 2 but no stage 1");
    tree_write(root, "bad/a", "not a strategy", 14);
    expect_failure(tree_path(root, "bad"), -EINVAL, "/bad/a: not a strategy in protobuf");
    assert_int_equal(symlink("nowhere", tree_path(root, "gap/c.json")), 0);
    expect_failure(tree_path(root, "gap"), -ENOENT, "/gap/c.json: cannot be read");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(folders, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lists, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_set_of_strategies, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("strategy files", tests, NULL, NULL);
}
