/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns against a matcher that tries everything. */
#include "base/glob.h"

#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))

static const struct {
    const char *pattern, *text;
    bool like;
} known[] = {
    {"", "", true},
    {"", "a", false},
    {"*", "", true},
    {"**", "", true},
    {"*", "a.b/c", true},
    {"a*", "a", true},
    {"a*c", "abcabc", true},
    {"a*c", "abcab", false},
    {"*.norm.*", "layers.0.norm.weight", true},
    {"*.norm.*", "layers.0.norm", false},
    {"layers.?.w", "layers.1.w", true},
    {"layers.?.w", "layers.12.w", false},
    {"layers.[0-3].w", "layers.3.w", true},
    {"layers.[0-3].w", "layers.4.w", false},
    {"layers.[!0-3].w", "layers.4.w", true},
    {"layers.[!0-3].w", "layers.0.w", false},
    {"[abc-]", "-", true},
    {"[]x]", "]", true},
    {"[!]x]", "y", true},
    {"[!]x]", "]", false},
    {"[*]", "*", true},
    {"[*]", "a", false},
    {"a[", "a[", true},
    {"a[bc", "a[bc", true},
    {"a[bc", "ab", false},
    {"[]", "[]", true},
    {"[!]", "[!]", true},
    {"?", "", false},
    {"?", "\xc3\xa9", true}, /* é */
    {"??", "\xc3\xa9", false},
    {"*??", "\xe2\x82\xac", false}, /* € is one character */
    {"?", "\xc3", true},
    {"a?c",
     "a\xe2\x82\xac"
     "c",
     true},
    {"A", "a", false},
    {"[^0-3]", "4", true},
    {"[^0-3]", "3", false},
    {"a\\*", "a*", true},
    {"a\\*", "ab", false},
    {"a\\", "a\\", true},
    {"[\\]]", "]", true},
    {"[a\\-z]", "b", false},
    {"[[:digit:]a]*", "7x", true},
    {"[[:digit:]a]*", "b", false},
    {"[![:upper:]]", "\xc3", true},
};

static void test_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (rfs_glob_match(known[i].pattern, known[i].text) != known[i].like)
            fail_msg("'%s' and '%s'", known[i].pattern, known[i].text);
    assert_true(rfs_glob_is_pattern("a*"));
    assert_true(rfs_glob_is_pattern("a?b"));
    assert_true(rfs_glob_is_pattern("[x]"));
    assert_false(rfs_glob_is_pattern("model.layers.0.weight"));
}

/* Patterns of plain letters, stars and question marks. */
static bool reference(const char *pattern, const char *text)
{
    if (!*pattern)
        return !*text;
    if (*pattern == '*')
        return reference(pattern + 1, text) || (*text && reference(pattern, text + 1));
    return *text && (*pattern == '?' || *pattern == *text) && reference(pattern + 1, text + 1);
}

static uint64_t state_of_random;

static size_t below(size_t n)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state_of_random >> 33) % n;
}

static void random_text(char *out, const char *letters, size_t most)
{
    const size_t n = below(most + 1);
    for (size_t i = 0; i < n; i++)
        out[i] = letters[below(strlen(letters))];
    out[n] = '\0';
}

static void test_random(void **state)
{
    const char *seed = getenv("RFS_SEED");
    char pattern[16], text[16];
    (void)state;
    state_of_random = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    printf("RFS_SEED=%llu\n", (unsigned long long)state_of_random);
    for (int i = 0; i < 200000; i++) {
        random_text(pattern, "ab*?*", 8);
        random_text(text, "ab", 10);
        if (rfs_glob_match(pattern, text) != reference(pattern, text))
            fail_msg("'%s' and '%s'", pattern, text);
    }
}

/* File names are matched as fnmatch did, for which they were written. */
static void test_as_fnmatch(void **state)
{
    char pattern[16], text[16];
    (void)state;
    for (int i = 0; i < 400000; i++) {
        random_text(pattern, "ab-[]!^*?.\\1", 8);
        random_text(text, "ab-].1*!", 6);
        const size_t n = strlen(pattern);
        /* To fnmatch a last backslash is like nothing, and [[.a.]] is a collating symbol. */
        if ((n > 0 && pattern[n - 1] == '\\') || strstr(pattern, "[."))
            continue;
        /*
         * FNM_PERIOD is of no use to compare with: glibc forgets behind a star where the name
         * begins.
         */
        const bool shown = text[0] != '.' || pattern[pattern[0] == '\\'] == '.';
        if (rfs_glob_match_file(pattern, text) != (shown && fnmatch(pattern, text, 0) == 0))
            fail_msg("'%s' and '%s'", pattern, text);
    }
    static const char *const classes[] = {"alnum", "alpha", "blank", "cntrl", "digit", "graph",
                                          "lower", "print", "punct", "space", "upper", "xdigit"};
    for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
        for (int c = 1; c < 128; c++) {
            snprintf(pattern, sizeof pattern, "x[[:%s:]]", classes[i]);
            snprintf(text, sizeof text, "x%c", c);
            assert_int_equal(rfs_glob_match_file(pattern, text), fnmatch(pattern, text, 0) == 0);
        }
}

/* What a matcher that goes back to every star would never finish. */
static void test_many_stars(void **state)
{
    char pattern[201], text[5001];
    (void)state;
    for (size_t i = 0; i < 200; i += 2)
        memcpy(pattern + i, "*a", 2);
    pattern[199] = 'b';
    pattern[200] = '\0';
    memset(text, 'a', 5000);
    text[5000] = '\0';
    assert_false(rfs_glob_match(pattern, text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_as_fnmatch),
        cmocka_unit_test(test_many_stars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
