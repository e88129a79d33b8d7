/* SPDX-License-Identifier: Apache-2.0 */
/* Names of parameters as names of files, both ways. */
#include "base/filename.h"
#include "tests/support/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect(const char *name, const char *want)
{
    char made[RFS_FILENAME_STEM + 1];
    char read[RFS_FILENAME_STEM + 1];

    assert_int_equal(rfs_filename_make(name, made), strlen(want));
    assert_string_equal(made, want);
    assert_true(rfs_filename_read(want, strlen(want), read));
    assert_string_equal(read, name);
    assert_false(rfs_filename_is_short(want, strlen(want)));
}

static void test_names(void **state)
{
    (void)state;
    expect("model.layers.0.weight", "model.layers.0.weight");
    expect("a/b", "a%2Fb");
    expect("/", "%2F");
    expect("100%", "100%25");
    expect("%2F", "%252F");
    expect(".", "%2E");
    expect("..", "%2E.");
    expect(".hidden", "%2Ehidden");
    expect("", "%");
    expect("%", "%25");
    expect("a\nb\x7f", "a%0Ab%7F");
    expect("~ \"'\\:*?", "~ \"'\\:*?");
    expect("w.npy", "w.npy");
    expect("\xe6\x9d\x83\xe9\x87\x8d", "\xe6\x9d\x83\xe9\x87\x8d");
    expect("\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80");
    expect("\xff\xfe", "%FF%FE");
    expect("\xe6\x9d", "%E6%9D");
    expect("\xc2\x85", "%C2%85"); /* a control character */
    expect("\xc0\xaf", "%C0%AF"); /* a slash in disguise */
}

/* What is another way to write a name is no file name. */
static void test_not_made(void **state)
{
    static const char *const stems[] = {
        "",    ".",     ".a", "a/b",  "%41", "a%2fb",  "%",      "%2", "a%",  "%G0",
        "%00", "a%00b", "%~", "\xff", "a\n", "%2E%2E", "%C3%A9", "%%", "+1%", "% 1",
    };
    char read[RFS_FILENAME_STEM + 1];

    (void)state;
    for (size_t i = 0; i < sizeof stems / sizeof *stems; i++)
        if (strcmp(stems[i], "%") != 0)
            assert_false(rfs_filename_read(stems[i], strlen(stems[i]), read));
}

static void test_long_names(void **state)
{
    char name[600];
    char other[600];
    char made[RFS_FILENAME_STEM + 1];
    char again[RFS_FILENAME_STEM + 1];

    (void)state;
    memset(name, 'a', sizeof name);
    name[RFS_FILENAME_STEM] = '\0';
    expect(name, name);
    name[RFS_FILENAME_STEM] = 'a';
    name[RFS_FILENAME_STEM + 1] = '\0';
    assert_int_equal(rfs_filename_make(name, made), RFS_FILENAME_STEM);
    assert_true(rfs_filename_is_short(made, strlen(made)));
    assert_memory_equal(made, name, RFS_FILENAME_STEM - 34);
    assert_memory_equal(made + RFS_FILENAME_STEM - 34, "%~", 2);
    assert_int_equal(strspn(made + RFS_FILENAME_STEM - 32, "0123456789abcdef"), 32);
    assert_false(rfs_filename_read(made, strlen(made), again));

    /* Names that differ at their ends only do not meet. */
    memcpy(other, name, sizeof other);
    other[RFS_FILENAME_STEM] = 'b';
    rfs_filename_make(other, again);
    assert_memory_equal(made, again, RFS_FILENAME_STEM - 34);
    assert_string_not_equal(made, again);

    /* Cut before a character that does not fit: 216 is no multiple of 3. */
    for (size_t i = 0; i + 3 < sizeof name; i += 3)
        memcpy(name + i, i == 0 ? "ab/" : "\xe6\x9d\x83", 4);
    assert_int_equal(rfs_filename_make(name, made), 5 + 70 * 3 + 34);
    assert_memory_equal(made, "ab%2F\xe6", 6);
    assert_memory_equal(made + 5 + 70 * 3, "%~", 2);
}

/* Any name comes back, its file name is one, and no other name has it. */
static void test_random_names(void **state)
{
    static const char likely[] = "%/.~aF2\n\xc3\xa9\xe6\x9d\x83\xf0";
    uint64_t seed = test_seed();

    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        char name[400];
        char made[RFS_FILENAME_STEM + 1];
        char read[RFS_FILENAME_STEM + 1];
        const uint32_t n = test_below(&seed, round % 50 == 0 ? 399 : 12);
        for (uint32_t i = 0; i < n; i++)
            name[i] = test_below(&seed, 2) ? (char)(1 + test_below(&seed, 255))
                                           : likely[test_below(&seed, sizeof likely - 1)];
        name[n] = '\0';
        const size_t length = rfs_filename_make(name, made);
        assert_int_equal(length, strlen(made));
        assert_in_range(length, 1, RFS_FILENAME_STEM);
        assert_null(strchr(made, '/'));
        assert_true(made[0] != '.');
        if (rfs_filename_is_short(made, length)) {
            assert_false(rfs_filename_read(made, length, read));
            assert_true(n > (RFS_FILENAME_STEM) / 3);
        } else {
            assert_true(rfs_filename_read(made, length, read));
            assert_string_equal(read, name);
        }
        /* The same bytes as a file name: read only if that is how they are made. */
        if (rfs_filename_read(name, n, read)) {
            rfs_filename_make(read, made);
            assert_string_equal(made, name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_not_made),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_random_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
