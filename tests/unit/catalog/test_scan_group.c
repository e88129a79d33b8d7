/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that stand in for others. */
#include "catalog/scan/group.h"
#include "scanning.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/*
 * A group info file: a communication group that must not matter, and the ranks up to a negative
 * one.
 */
static void put_group(const struct scanning *s, const char *name, const int *ranks)
{
    struct bytes list = {0};
    struct bytes file = {0};
    put(s, name);
    bytes_add(&file, "\x0a\x0a\x0a\x02gp\x12\x04\x08\x00\x08\x07", 12);
    for (; *ranks >= 0; ranks++)
        bytes_number(&list, 1, (uint64_t)*ranks);
    bytes_field(&file, 2, list.p, list.n);
    tree_file(&s->tree, name, file.p, file.n);
    bytes_free(&list);
    bytes_free(&file);
}
#define GROUP(s, name, ...) put_group(s, name, (const int[]){__VA_ARGS__, -1})

static void put_ranks(const struct scanning *s, const int *ranks)
{
    for (; *ranks >= 0; ranks++) {
        char name[64];
        snprintf(name, sizeof name, "rank_%d/a.ckpt", *ranks);
        put(s, name);
    }
}
#define RANKS(s, ...) put_ranks(s, (const int[]){__VA_ARGS__, -1})

static void test_one_list(void **state)
{
    struct scanning *s = *state;
    RANKS(s, 1, 2, 3);
    GROUP(s, "group_info.pb", 6, 0, 3, 1);
    s->options.group_info = (char *)tree_path(&s->tree, "group_info.pb");
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_1/a.ckpt");
    assert_string_equal(files_of(s, 1), "rank_1/a.ckpt");
    assert_string_equal(files_of(s, 2), "rank_2/a.ckpt");
    assert_string_equal(files_of(s, 3), "rank_3/a.ckpt");
    assert_string_equal(files_of(s, 6), "rank_1/a.ckpt");
    assert_int_equal(s->scan.n, 5);
    assert_int_equal(s->lines.n, 2);
    assert_non_null(strstr(s->lines.last, "rank 6 has no checkpoint: that of rank 1 is used"));
    assert_non_null(strstr(s->lines.last, "group_info.pb"));
    put(s, "rank_3/b.ckpt"); /* of another save than what stands in for rank 0 */
    REFUSED(s, -EINVAL, "different saves: rank_1/a.ckpt and rank_3/b.ckpt");
}

/* An empty folder of the rank, and parts of the one that stands in. */
static void test_parts(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/a_part0.ckpt");
    put(s, "rank_0/a_part1.ckpt");
    tree_folder(&s->tree, "rank_1");
    GROUP(s, "group_info.pb", 0, 1);
    s->options.group_info = (char *)tree_path(&s->tree, "group_info.pb");
    s->options.segmented = true;
    scanned(s);
    assert_string_equal(files_of(s, 1), "rank_0/a_part0.ckpt rank_0/a_part1.ckpt");
    assert_int_equal(s->scan.present, 2);
}

/* As MindSpore's tutorials write them, into the ranks' folders. */
static void test_folder_of_ranks(void **state)
{
    struct scanning *s = *state;
    RANKS(s, 0, 1, 3, 5);
    GROUP(s, "rank_0/group_info.pb", 0, 4);
    GROUP(s, "rank_4/group_info.pb", 4, 0);
    GROUP(s, "rank_1/group_info.pb", 1, 2, 2);
    GROUP(s, "rank_3/group_info.pb", -1);
    put(s, "rank_1/other.pb");
    put(s, "rank_1/deeper/group_info.pb");
    put(s, "rank_5/.group_info.pb");
    s->options.group_info = (char *)s->tree.root;
    scanned(s);
    assert_string_equal(files_of(s, 4), "rank_0/a.ckpt");
    assert_string_equal(files_of(s, 2), "rank_1/a.ckpt");
    assert_int_equal(s->scan.n, 6);
    assert_int_equal(s->lines.n, 2);
    GROUP(s, "rank_4/group_info.pb", 4, 0, 5);
    REFUSED(s, -EINVAL, "group_info.pb: it and ", "different ranks as equal to rank 0");
}

static void test_flat_folder(void **state)
{
    struct scanning *s = *state;
    RANKS(s, 2);
    put(s, "info/notes.txt");
    s->options.group_info = (char *)tree_path(&s->tree, "info");
    REFUSED(s, -ENOENT, "info: the folder has no group info file");
    GROUP(s, "info/group_info_0.pb", 0, 2);
    GROUP(s, "info/group_config_1.pb", 1, 3); /* neither is there */
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_2/a.ckpt");
    assert_string_equal(files_of(s, 1), "");
    assert_int_equal(s->scan.n, 2);
}

/* Nobody gets what was itself lent, or what is not of the asked step. */
static void test_steps(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/net-1_1.ckpt");
    put(s, "rank_0/net-2_1.ckpt");
    put(s, "rank_1/net-1_1.ckpt");
    put(s, "rank_2/net-1_1.ckpt");
    GROUP(s, "group_info.pb", 0, 1);
    s->options.group_info = (char *)tree_path(&s->tree, "group_info.pb");
    s->options.epoch = 2;
    scanned(s);
    assert_string_equal(files_of(s, 1), "rank_0/net-2_1.ckpt");
    assert_string_equal(files_of(s, 2), "-");
}

static void bad_group(struct scanning *s, const char *bytes, size_t n, const char *part)
{
    tree_file(&s->tree, "group_info.pb", bytes, n);
    REFUSED(s, -EINVAL, "group_info.pb: ", part);
}

static void test_bad_files(void **state)
{
    struct scanning *s = *state;
    RANKS(s, 0);
    s->options.group_info = (char *)tree_path(&s->tree, "group_info.pb");
    REFUSED(s, -ENOENT, "group_info.pb: cannot be read");
    bad_group(s, "", 0, "not a group info file");
    bad_group(s, "\x12\x00", 2, "names no equal ranks");
    bad_group(s, "\x12\x05\x08\x00", 4, "not a group info file");
    bad_group(s, "\x12\x02\x08\x00\x0a\x01", 6, "not a group info file");
    bad_group(s, "\x0a\x02\x0a\x00\x12\x00", 6, "not a group info file"); /* no ranks in an item */
    bad_group(s, "\x12\x06\x08\xff\xff\xff\xff\x0f", 8, "rank 4294967295");
    bad_group(s, "\x08\x01", 2, "not a group info file");
    tree_folder(&s->tree, "empty");
    s->spec.path = tree_path(&s->tree, "rank_0/a.ckpt");
    MISUSED(s, "group_info");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scanning_setup, scanning_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_one_list),    TEST(test_parts), TEST(test_folder_of_ranks),
        TEST(test_flat_folder), TEST(test_steps), TEST(test_bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
