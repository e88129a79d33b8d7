/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strict reader of JSON: what is taken, with its value, and what is not, with the place and the
 * reason.
 */
#include "base/json_read.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct rfs_json_read begin(const char *text)
{
    return rfs_json_read_begin(text, strlen(text));
}

static void string_is(const char *text, const char *value)
{
    struct rfs_json_read json = begin(text);
    assert_true(rfs_json_read_string(&json));
    assert_string_equal(json.text, value);
    assert_int_equal(json.text_n, strlen(value));
    assert_true(rfs_json_read_end(&json));
    rfs_json_read_free(&json);
}

static void no_string(const char *text, size_t n, size_t at, const char *wrong)
{
    struct rfs_json_read json = rfs_json_read_begin(text, n);
    assert_false(rfs_json_read_string(&json));
    assert_non_null(json.wrong);
    assert_string_equal(json.wrong, wrong);
    assert_int_equal(json.at, at);
    /* It stays so. */
    assert_false(rfs_json_read_skip(&json));
    assert_false(rfs_json_read_end(&json));
    assert_string_equal(json.wrong, wrong);
    rfs_json_read_free(&json);
}
#define NO_STRING(text, at, wrong) no_string(text, sizeof(text) - 1, at, wrong)

static void test_strings(void **state)
{
    (void)state;
    string_is("\"\"", "");
    string_is(" \t\r\n\"a b\"\n", "a b");
    string_is("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t");
    string_is("\"\\u0001\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\uDBFF\\uDFFF\"",
              "\x01"
              "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf");
    string_is("\"\xc3\xa9\xf0\x9f\x98\x80\x7f\"", "\xc3\xa9\xf0\x9f\x98\x80\x7f");
    NO_STRING("", 0, "it ends too early");
    NO_STRING("x", 0, "a string is expected here");
    NO_STRING("\"abc", 4, "it ends in a string");
    NO_STRING("\"abc\\", 5, "it ends in a string");
    NO_STRING("\"a\nb\"", 2, "a control character in a string");
    NO_STRING("\"a\0b\"", 2, "a control character in a string");
    NO_STRING("\"a\\x\"", 3, "a backslash before a character that needs none");
    NO_STRING("\"a\\\0\"", 3, "a backslash before a character that needs none");
    NO_STRING("\"\\u00g0\"", 5, "\\u is not followed by four hexadecimal digits");
    NO_STRING("\"\\u00", 5, "\\u is not followed by four hexadecimal digits");
    NO_STRING("\"\\u0000\"", 7, "a string with a NUL");
    NO_STRING("\"\\ud800\"", 7, "half a surrogate pair is not a character");
    NO_STRING("\"\\ud800\\n\"", 7, "half a surrogate pair is not a character");
    NO_STRING("\"\\ud800\\ud800\"", 13, "half a surrogate pair is not a character");
    NO_STRING("\"\\udc00\"", 7, "half a surrogate pair is not a character");
    NO_STRING("  \"\xff\"", 2, "a string that is not UTF-8");
    NO_STRING("\"\xed\xa0\x80\"", 0, "a string that is not UTF-8");
    NO_STRING("\"\xc0\x80\"", 0, "a string that is not UTF-8");
}

/* Each byte at each place of a string: eight are looked at together. */
static void test_each_byte(void **state)
{
    enum { LETTERS = 20 };

    (void)state;
    for (unsigned byte = 0; byte < 256; byte++)
        for (size_t place = 0; place < LETTERS; place++) {
            char text[] = "\"aaaaaaaaaaaaaaaaaaaa\"";
            struct rfs_json_read json = rfs_json_read_begin(text, sizeof text - 1);
            text[1 + place] = (char)byte;
            const char *wrong = byte < ' '     ? "a control character in a string"
                                : byte == '\\' ? "a backslash before a character that needs none"
                                : byte >= 0x80 ? "a string that is not UTF-8"
                                               : NULL;
            if (byte == '\\' && place == LETTERS - 1)
                wrong = "it ends in a string"; /* what follows is a quote */
            assert_int_equal(rfs_json_read_string(&json), wrong == NULL);
            if (wrong) {
                assert_string_equal(json.wrong, wrong);
            } else {
                assert_int_equal(json.text_n, byte == '"' ? place : LETTERS);
                assert_memory_equal(json.text, text + 1, json.text_n);
                assert_int_equal(json.at, json.text_n + 2);
            }
            rfs_json_read_free(&json);
        }
}

/* A character of two bytes at each place, and half of one. */
static void test_characters_at_each_place(void **state)
{
    (void)state;
    for (size_t place = 0; place < 20; place++) {
        char value[32];
        char text[sizeof value + 2];
        snprintf(value, sizeof value, "%.*s\xc3\xa9%s", (int)place, "aaaaaaaaaaaaaaaaaaaa", "aaa");
        snprintf(text, sizeof text, "\"%s\"", value);
        string_is(text, value);
        text[2 + place] = 'a';
        no_string(text, strlen(text), 0, "a string that is not UTF-8");
    }
}

static void number_is(const char *text, uint64_t value)
{
    struct rfs_json_read json = begin(text);
    uint64_t got;
    assert_true(rfs_json_read_u64(&json, &got));
    assert_true(got == value);
    rfs_json_read_free(&json);
}

static void no_number(const char *text, const char *wrong)
{
    struct rfs_json_read json = begin(text);
    uint64_t got;
    assert_false(rfs_json_read_u64(&json, &got));
    assert_string_equal(json.wrong, wrong);
    rfs_json_read_free(&json);
}

static void test_numbers(void **state)
{
    (void)state;
    number_is("0", 0);
    number_is(" 7]", 7);
    number_is("9007199254740993", UINT64_C(9007199254740993)); /* no double has that */
    number_is("18446744073709551615", UINT64_MAX);
    no_number("18446744073709551616", "a number above 2^64 - 1");
    no_number("99999999999999999999999", "a number above 2^64 - 1");
    static const char *const bad[] = {"",    "-1",  "+1", "01", "00",   "1.0",
                                      "1e3", "1E3", ".5", "x",  "\"1\""};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        no_number(bad[i], "a whole number is expected here");
    number_is("0x10", 0); /* and something follows */
}

static bool skips(const char *text)
{
    struct rfs_json_read json = begin(text);
    const bool good = rfs_json_read_skip(&json) && rfs_json_read_end(&json);
    rfs_json_read_free(&json);
    return good;
}

static void test_skip(void **state)
{
    (void)state;
    static const char *const good[] = {"1",
                                       "-0",
                                       "-1.5e+10",
                                       "1E-2",
                                       "true",
                                       " false ",
                                       "null",
                                       "\"x\"",
                                       "[]",
                                       "{}",
                                       "[[],{},[[]]]",
                                       "{\"a\":[1,2,{\"b\":null}],\"c\":{\"d\":\"e\"}}",
                                       "[ 1 , [ ] , { } ]"};
    static const char *const bad[] = {
        "",     "[",     "{",       "]",        "}",        "[1",  "[1,",        "[1,]",
        "[,1]", "[1 2]", "{\"a\"}", "{\"a\":}", "{a:1}",    "{,}", "{\"a\":1,}", "tru",
        "nul",  "-",     "1.",      "1e",       "01",       "[1}", "{\"a\":1]",  "1 1",
        "\"",   "[\"]",  "+1",      "NaN",      "Infinity", "'a'"};
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++)
        if (!skips(good[i]))
            fail_msg("not skipped: %s", good[i]);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        if (skips(bad[i]))
            fail_msg("skipped: %s", bad[i]);
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * RFS_JSON_DEPTH + 3];
    memset(text, '[', RFS_JSON_DEPTH);
    memset(text + RFS_JSON_DEPTH, ']', RFS_JSON_DEPTH);
    text[2 * RFS_JSON_DEPTH] = '\0';
    assert_true(skips(text));
    memset(text, '[', RFS_JSON_DEPTH + 1);
    memset(text + RFS_JSON_DEPTH + 1, ']', RFS_JSON_DEPTH + 1);
    text[2 * RFS_JSON_DEPTH + 2] = '\0';
    assert_false(skips(text));
    const size_t n = 50 * 1000 * 1000;
    char *deep = malloc(n);
    assert_non_null(deep);
    for (size_t i = 0; i < n; i++)
        deep[i] = "{\"a\":"[i % 5];
    struct rfs_json_read json = rfs_json_read_begin(deep, n);
    assert_false(rfs_json_read_skip(&json));
    assert_string_equal(json.wrong, "it is nested too deep");
    assert_true(json.at < 1000);
    rfs_json_read_free(&json);
    free(deep);
}

static void test_objects(void **state)
{
    (void)state;
    struct rfs_json_read json = begin("{ \"a\" : [1, 2] , \"b\":[ ] }  ");
    bool first = true;
    bool inner = true;
    uint64_t value;
    assert_true(rfs_json_read_peek(&json, '{'));
    assert_true(rfs_json_read_member(&json, &first));
    assert_string_equal(json.text, "a");
    assert_true(rfs_json_read_element(&json, &inner));
    assert_true(rfs_json_read_u64(&json, &value) && value == 1);
    assert_true(rfs_json_read_element(&json, &inner));
    assert_true(rfs_json_read_u64(&json, &value) && value == 2);
    assert_false(rfs_json_read_element(&json, &inner));
    assert_null(json.wrong);
    assert_true(rfs_json_read_member(&json, &first));
    assert_string_equal(json.text, "b");
    inner = true;
    assert_false(rfs_json_read_element(&json, &inner));
    assert_false(rfs_json_read_member(&json, &first));
    assert_null(json.wrong);
    assert_true(rfs_json_read_end(&json));
    rfs_json_read_free(&json);

    json = begin("{} x");
    first = true;
    assert_false(rfs_json_read_member(&json, &first));
    assert_false(rfs_json_read_end(&json));
    assert_string_equal(json.wrong, "something follows after its end");
    rfs_json_read_free(&json);

    json = begin("[1]");
    first = true;
    assert_false(rfs_json_read_member(&json, &first));
    assert_string_equal(json.wrong, "an object is expected here");
    rfs_json_read_free(&json);
}

static void i64_is(const char *text, int64_t value)
{
    struct rfs_json_read json = begin(text);
    int64_t number;
    assert_true(rfs_json_read_i64(&json, &number));
    assert_true(number == value);
    assert_true(rfs_json_read_end(&json));
}

static void no_i64(const char *text)
{
    struct rfs_json_read json = begin(text);
    int64_t number;
    assert_false(rfs_json_read_i64(&json, &number));
    assert_non_null(json.wrong);
}

static void test_signed_numbers(void **state)
{
    (void)state;
    i64_is("0", 0);
    i64_is("-0", 0);
    i64_is(" -1 ", -1);
    i64_is("9223372036854775807", INT64_MAX);
    i64_is("-9223372036854775808", INT64_MIN);
    no_i64("9223372036854775808");
    no_i64("-9223372036854775809");
    no_i64("-");
    no_i64("- 1");
    no_i64("--1");
    no_i64("-01");
    no_i64("-1.0");
    no_i64("+1");
    no_i64("");
}

/* What is passed by is looked at, and leaves the key that was read as it is. */
static void test_parts(void **state)
{
    (void)state;
    struct rfs_json_read json = begin("{\"a\": {\"b\\n\": [1, \"c\"]} , \"d\":2}");
    struct rfs_json_part part;
    bool first = true;
    assert_true(rfs_json_read_member(&json, &first));
    assert_true(rfs_json_read_part(&json, &part));
    assert_string_equal(json.text, "a");
    assert_int_equal(part.at, 6);
    assert_int_equal(part.n, strlen("{\"b\\n\": [1, \"c\"]}"));
    assert_true(rfs_json_read_member(&json, &first));
    assert_string_equal(json.text, "d");
    assert_true(rfs_json_read_part(&json, &part));
    assert_int_equal(part.n, 1);
    assert_false(rfs_json_read_member(&json, &first));
    assert_true(rfs_json_read_end(&json));
    rfs_json_read_free(&json);
    json = begin("[\"\xc0\x80\"]");
    assert_false(rfs_json_read_part(&json, &part));
    assert_string_equal(json.wrong, "a string that is not UTF-8");
}

/* ---- texts that come in blocks ---- */

struct source {
    const char *text;
    size_t n;
    unsigned most; /* bytes at once */
    size_t fails;  /* there is no byte of this number */
};

static int fill(void *ctx, void *buf, size_t n, uint64_t offset, size_t *got)
{
    const struct source *source = ctx;

    assert_true(offset <= source->n && n > 0);
    if (offset >= source->fails)
        return -EIO;
    *got = source->n - offset < n ? source->n - offset : n;
    if (*got > source->most)
        *got = source->most;
    memcpy(buf, source->text + offset, *got);
    return 0;
}

static bool walk(struct rfs_json_read *json)
{
    bool first = true;
    uint64_t number;
    int64_t integer;

    if (rfs_json_read_peek(json, '{')) {
        while (rfs_json_read_member(json, &first))
            if (rfs_json_read_is(json, "n"))
                rfs_json_read_u64(json, &number);
            else if (rfs_json_read_is(json, "i"))
                rfs_json_read_i64(json, &integer);
            else if (!rfs_json_read_null(json))
                rfs_json_read_skip(json);
    } else {
        rfs_json_read_string(json);
    }
    return rfs_json_read_end(json);
}

/* The same is read, and the same is wrong at the same place, however the text comes. */
static void same_in_blocks(const char *text, size_t n)
{
    struct rfs_json_read whole = rfs_json_read_begin(text, n);
    const bool good = walk(&whole);

    for (unsigned most = 1; most < 12; most += 1 + most / 4) {
        struct source source = {text, n, most, SIZE_MAX};
        struct rfs_json_read json = rfs_json_read_begin_blocks(fill, &source, 0);
        assert_int_equal(walk(&json), good);
        if (!good && json.wrong != whole.wrong)
            assert_string_equal(json.wrong, whole.wrong);
        assert_int_equal(rfs_json_read_place(&json), whole.at);
        if (good && whole.text) {
            assert_int_equal(json.text_n, whole.text_n);
            assert_memory_equal(json.text, whole.text, whole.text_n + 1);
        }
        rfs_json_read_free(&json);
    }
    rfs_json_read_free(&whole);
}

static void test_blocks(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"n\": 18446744073709551615, \"i\": -12, \"x\": [1, 20 , 300,4,[ ]], \"y\": null} ",
        "{\"a\": [0, 10, 01]}",
        "{\"a\": [1, 2, 3.5e+7, -1, true, false, null, {\"b\": 1}]}",
        "{\"n\": 012}",
        "{\"n\": 18446744073709551616}",
        "{\"i\": -9223372036854775809}",
        "{\"x\": 1.}",
        "{\"x\": tru}",
        "{\"x\": [1, 2",
        "{\"\\ud83d\\ude00\": \"\\u00e9\\n\"}",
        "\"\xc3\xa9\xf0\x9f\x98\x80\xe2\x82\xac\"",
        "\"a\xf0\x9f\x98\"",
        "\"\xe2\x82\xac\xff\"",
        "\"\\ud83d\\u0041\"",
        "\"\\ud83d",
        "\"abc",
        "\"abc\xc3",
        "{} x",
        "",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        same_in_blocks(texts[i], strlen(texts[i]));
}

static void test_random_blocks(void **state)
{
    (void)state;
    static const char text[] = "{\"n\": 17, \"i\": -4, \"w\": {\"a\": [10, 0,  7, 100 , 3], \"b\": "
                               "\"\xc3\xa9\\u20ac\"}, \"z\": [[1], 2.5, null, true]}";
    const char *given = getenv("RFS_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    print_message("RFS_SEED=%u\n", seed);
    for (unsigned i = 0; i < 4000; i++) {
        static const char some[] = "{}[],:\"\\ 0123456789.-eE\xc3\xa9tn\n";
        char mutant[sizeof text];
        memcpy(mutant, text, sizeof text);
        for (unsigned k = (unsigned)rand_r(&seed) % 3; k < 3; k++)
            mutant[(size_t)rand_r(&seed) % (sizeof text - 1)] =
                some[(size_t)rand_r(&seed) % (sizeof some - 1)];
        same_in_blocks(mutant, sizeof text - 1);
    }
}

/* Longer than a block, and a read that fails within it. */
static void test_long_blocks(void **state)
{
    (void)state;
    const size_t n = 3 * RFS_JSON_BLOCK;
    char *text = malloc(n);
    assert_non_null(text);
    for (unsigned at = 7; at < 11; at++) { /* numbers on every side of the borders */
        memset(text, ' ', n);
        memcpy(text, "{\"a\": [", 7);
        for (size_t i = at; i + 10 <= n; i += 4)
            memcpy(text + i, "12 ,", 4);
        memcpy(text + n - 6, " 7 ]}", 5);
        struct source source = {text, n, UINT_MAX, SIZE_MAX};
        struct rfs_json_read json = rfs_json_read_begin_blocks(fill, &source, 0);
        bool first = true;
        assert_true(rfs_json_read_member(&json, &first));
        assert_true(rfs_json_read_skip(&json));
        assert_false(rfs_json_read_member(&json, &first));
        assert_true(rfs_json_read_end(&json));
        assert_int_equal(rfs_json_read_place(&json), n);
        rfs_json_read_free(&json);
    }
    struct source source = {text, n, UINT_MAX, RFS_JSON_BLOCK};
    struct rfs_json_read json = rfs_json_read_begin_blocks(fill, &source, 0);
    assert_false(walk(&json));
    assert_int_equal(json.failed, -EIO);
    assert_string_equal(json.wrong, "it can't be read");
    rfs_json_read_free(&json);

    memset(text, 'x', n); /* only what is kept is bounded */
    text[0] = text[n - 1] = '"';
    source = (struct source){text, n, UINT_MAX, SIZE_MAX};
    json = rfs_json_read_begin_blocks(fill, &source, 0);
    assert_true(rfs_json_read_skip(&json) && rfs_json_read_end(&json));
    rfs_json_read_free(&json);
    json = rfs_json_read_begin_blocks(fill, &source, 0);
    assert_false(rfs_json_read_string(&json));
    assert_string_equal(json.wrong, "a string of more than 1 MiB");
    rfs_json_read_free(&json);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_each_byte),
        cmocka_unit_test(test_characters_at_each_place),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_skip),
        cmocka_unit_test(test_signed_numbers),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_random_blocks),
        cmocka_unit_test(test_long_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
