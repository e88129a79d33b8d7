/* SPDX-License-Identifier: Apache-2.0 */
/* Where a text of several paths is cut. */
#include "base/path.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/tree.h"

static void expect(const char *text, size_t n, const char *const *want)
{
    struct rfs_path_list list = {0};

    assert_int_equal(rfs_path_list_split(text, &list), 0);
    for (size_t i = 0; i < n && i < list.n; i++)
        assert_string_equal(list.data[i], want[i]);
    assert_int_equal(list.n, n);
    rfs_path_list_free(&list);
}

#define EXPECT(text, ...)                                                                          \
    expect(text, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *),                      \
           (const char *const[]){__VA_ARGS__})

static void what_does_not_exist_ends_at_the_next_colon(void **unused)
{
    (void)unused;
    EXPECT("a", "a");
    EXPECT("a:b:c", "a", "b", "c");
    EXPECT("", "");
    EXPECT(":", "", "");
    EXPECT("a:", "a", "");
    EXPECT("a::b", "a", "", "b");
}

static void what_exists_keeps_its_colons(void **unused)
{
    char *root = tree_new();

    (void)unused;
    tree_write(root, "a:b", "", 0);
    tree_write(root, "a", "", 0);
    tree_write(root, "d:e/f", "", 0);
    assert_int_equal(chdir(root), 0);
    EXPECT("a:b", "a:b");
    EXPECT("a:b:a", "a:b", "a");
    EXPECT("a:a:b", "a", "a:b");
    EXPECT("d:e/f:d:e", "d:e/f", "d:e");
    EXPECT("d:e/g:a", "d", "e/g", "a");
    assert_int_equal(chdir("/"), 0);
    tree_remove(root);
}

static void urls_keep_theirs(void **unused)
{
    (void)unused;
    EXPECT("s3://bucket/a:b", "s3://bucket/a", "b");
    EXPECT("a:s3://bucket/b", "a", "s3://bucket/b");
    EXPECT("http://host:9000/a:https://host/b", "http://host:9000/a", "https://host/b");
    EXPECT("s3://bucket", "s3://bucket");
    EXPECT("s3://bucket:https://host:8/b", "s3://bucket", "https://host:8/b");
    EXPECT("https://host:8:http://[::1]:9:/c", "https://host:8", "http://[::1]:9", "/c");
    EXPECT("https://host:s3://bucket:a", "https://host", "s3://bucket", "a");
}

/* Longer than a path may be: nothing of it exists, and it takes no time to find that out. */
static void a_long_list(void **unused)
{
    const size_t n = 100000;
    char *text = malloc(2 * n);
    struct rfs_path_list list = {0};

    (void)unused;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        memcpy(text + 2 * i, i % 400 == 0 ? "x:" : "xx", 2);
    text[2 * n - 1] = '\0';
    assert_int_equal(rfs_path_list_split(text, &list), 0);
    assert_int_equal(list.n, n / 400 + 1);
    rfs_path_list_sort(&list);
    assert_string_equal(list.data[0], "x");
    rfs_path_list_free(&list);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_exist_ends_at_the_next_colon),
        cmocka_unit_test(what_exists_keeps_its_colons),
        cmocka_unit_test(urls_keep_theirs),
        cmocka_unit_test(a_long_list),
    };

    return cmocka_run_group_tests_name("path lists", tests, NULL, NULL);
}
