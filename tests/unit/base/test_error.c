/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_all_parts(void **state)
{
    struct rfs_error err = {0};
    const struct rfs_where where = {"a/b.ckpt", 17, "w"};

    (void)state;
    assert_int_equal(rfs_fail(&err, -EIO, where, "do that", "bad %d", 3), -EIO);
    assert_string_equal(err.text, "a/b.ckpt: offset 17: parameter 'w': bad 3; try: do that");
    assert_int_equal(err.code, -EIO);
    assert_false(err.usage);
}

static void test_parts_that_do_not_apply_are_left_out(void **state)
{
    struct rfs_error err = {0};

    (void)state;
    rfs_fail(&err, -EIO, RFS_NOWHERE, NULL, "bad");
    assert_string_equal(err.text, "bad");
    rfs_fail(&err, -EIO, RFS_IN("f"), NULL, "bad");
    assert_string_equal(err.text, "f: bad");
    rfs_fail(&err, -EIO, RFS_AT("f", 0), "this", "bad");
    assert_string_equal(err.text, "f: offset 0: bad; try: this");
    rfs_fail(&err, -EIO, RFS_OF("f", "p"), NULL, "bad");
    assert_string_equal(err.text, "f: parameter 'p': bad");
    rfs_fail_memory(&err);
    assert_int_equal(err.code, -ENOMEM);
    assert_string_equal(err.text, "out of memory");
}

static void test_usage(void **state)
{
    struct rfs_error err = {0};

    (void)state;
    assert_int_equal(rfs_fail_usage(&err, "cache=2G", "cache=%s is no size", "x"), -EINVAL);
    assert_true(err.usage);
    assert_string_equal(err.text, "cache=x is no size; try: cache=2G");
    rfs_fail(&err, -EIO, RFS_NOWHERE, NULL, "input");
    assert_false(err.usage);
}

static void test_nobody_asks(void **state)
{
    (void)state;
    assert_int_equal(rfs_fail(NULL, -EPERM, RFS_NOWHERE, "r", "m"), -EPERM);
    assert_int_equal(rfs_fail_usage(NULL, "r", "m"), -EINVAL);
}

static void test_may_quote_itself(void **state)
{
    struct rfs_error err = {0};

    (void)state;
    rfs_fail(&err, -EIO, RFS_IN("f"), NULL, "inner");
    rfs_fail(&err, -EIO, RFS_IN(err.text), err.text, "outer (%s)", err.text);
    assert_string_equal(err.text, "f: inner: outer (f: inner); try: f: inner");
}

static void test_one_printable_line(void **state)
{
    struct rfs_error err = {0};

    (void)state;
    rfs_fail(&err, -EIO, RFS_OF("a\nb", "\033[2J"), NULL, "tab\there");
    assert_string_equal(err.text, "a\\x0ab: parameter '\\x1b[2J': tab\\x09here");
}

static void test_long_names_leave_room_for_the_rest(void **state)
{
    static char path[6000], name[6000], wrong[6000];
    struct rfs_error err = {0};

    (void)state;
    memset(path, 'p', sizeof path - 1);
    memcpy(path + sizeof path - 6, "/tail", 5);
    memset(name, '\001', sizeof name - 1);
    memset(wrong, 'w', sizeof wrong - 1);
    rfs_fail(&err, -EIO, RFS_OF(path, name), "the remedy", "%s", "short");
    assert_non_null(strstr(err.text, "/tail: parameter '\\x01"));
    assert_non_null(strstr(err.text, "': short; try: the remedy"));
    rfs_fail(&err, -EIO, RFS_AT(path, INT64_MAX), "the remedy", "%s", wrong);
    assert_non_null(strstr(err.text, "/tail: offset 9223372036854775807: www"));
    assert_non_null(strstr(err.text, "www; try: the remedy"));
    memset(path, '\001', sizeof path - 1);
    memset(wrong, '\001', sizeof wrong - 1);
    rfs_fail(&err, -EIO, RFS_OF(path, name), wrong, "%s", wrong);
    assert_true(strlen(err.text) < sizeof err.text);
}

static void check_shown(const char *text, const char *expected)
{
    char out[64];

    assert_int_equal(rfs_text_printable(out, sizeof out, text), strlen(expected));
    assert_string_equal(out, expected);
}

static void test_utf8(void **state)
{
    (void)state;
    check_shown("", "");
    check_shown("plain ~", "plain ~");
    check_shown("\x7f", "\\x7f");
    check_shown("\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x98\x80");
    check_shown("\xc2\x9b", "\\xc2\\x9b");                   /* CSI, a control character */
    check_shown("\xc3", "\\xc3");                            /* cut off by the end */
    check_shown("\xe2\x86", "\\xe2\\x86");                   /* the same, later */
    check_shown("\xf0\x9f\x98", "\\xf0\\x9f\\x98");          /* the same, later still */
    check_shown("\xc0\xaf", "\\xc0\\xaf");                   /* overlong '/' */
    check_shown("\xe0\x80\xaf", "\\xe0\\x80\\xaf");          /* overlong, of three */
    check_shown("\xed\xa0\x80", "\\xed\\xa0\\x80");          /* a surrogate */
    check_shown("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); /* beyond U+10FFFF */
    check_shown("\xff\xfe", "\\xff\\xfe");
    check_shown("a\xe9z", "a\\xe9z"); /* Latin-1 */
}

static void test_text_is_cut_between_characters(void **state)
{
    char out[8];

    (void)state;
    char whole[64];
    static const char *const deceptive[] = {"\u061c", "\u180e", "\u200b", "\u200f", "\u202a",
                                            "\u202e", "\u2060", "\u2066", "\u2069", "\ufeff"};
    for (size_t i = 0; i < sizeof deceptive / sizeof *deceptive; i++) {
        char escaped[64] = "";
        for (const char *c = deceptive[i]; *c; c++)
            sprintf(escaped + strlen(escaped), "\\x%02x", (unsigned char)*c);
        rfs_text_printable(whole, sizeof whole, deceptive[i]);
        assert_string_equal(whole, escaped);
    }
    rfs_text_printable(whole, sizeof whole, "\u2010\u00fc\u65e5");
    assert_string_equal(whole, "\u2010\u00fc\u65e5");
    assert_int_equal(rfs_text_printable(out, 4, "ab\xc3\xa9"), 2);
    assert_string_equal(out, "ab");
    assert_int_equal(rfs_text_printable(out, 5, "ab\xc3\xa9"), 4);
    assert_int_equal(rfs_text_printable(out, 5, "a\n"), 1);
    assert_string_equal(out, "a");
    assert_int_equal(rfs_text_printable(out, 6, "a\n"), 5);
    assert_int_equal(rfs_text_printable(out, 1, "a"), 0);
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_parts),
        cmocka_unit_test(test_parts_that_do_not_apply_are_left_out),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_nobody_asks),
        cmocka_unit_test(test_may_quote_itself),
        cmocka_unit_test(test_one_printable_line),
        cmocka_unit_test(test_long_names_leave_room_for_the_rest),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_text_is_cut_between_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
