/* SPDX-License-Identifier: Apache-2.0 */
/* Names and dtypes of outputs: the user's map and rules, and what is refused of them. */
#include "plan/names.h"

#include "tests/support/tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))

static char *root;

static int set_up(void **state)
{
    (void)state;
    root = tree_new();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tree_remove(root);
    return 0;
}

static int open_text(const void *json, size_t n, struct rfs_names **out, struct rfs_error *err)
{
    tree_write(root, "map.json", json, n);
    const struct rfs_names_config config = {.names = tree_path(root, "map.json")};
    return rfs_names_open(&config, out, err);
}

static struct rfs_names *open_names(const char *json)
{
    struct rfs_names *output_map;
    struct rfs_error err = {0};
    if (open_text(json, strlen(json), &output_map, &err))
        fail_msg("%s", err.text);
    return output_map;
}

static struct rfs_names *open_dtype(const char *rules)
{
    const struct rfs_names_config config = {.dtype = rules};
    struct rfs_names *output_map;
    struct rfs_error err = {0};
    if (rfs_names_open(&config, &output_map, &err))
        fail_msg("%s", err.text);
    return output_map;
}

static void test_nothing_asked_for(void **state)
{
    const struct rfs_names_config config = {.names = NULL};
    struct rfs_names *output_map = (struct rfs_names *)&config;
    const char *name = "w";
    (void)state;
    assert_int_equal(rfs_names_open(&config, &output_map, NULL), 0);
    assert_null(output_map);
    assert_ptr_equal(rfs_names_shown(NULL, name), name);
    assert_int_equal(rfs_names_dtype(NULL, name, RFS_FLOAT32), RFS_FLOAT32);
    assert_false(rfs_names_unused(NULL, RFS_NAMES_MAP, NULL, 0));
    rfs_names_free(NULL);
}

static void test_names(void **state)
{
    const char *other = "other";
    (void)state;
    struct rfs_names *output_map =
        open_names("{\"a\": \"b\", \"b\": \"a\", \"gone\": null, \"same\": \"same\",\n"
                   " \"\\u00e9\\\"\": \"\xe2\x82\xac\\\\\\/x\"}");
    assert_string_equal(rfs_names_shown(output_map, "a"), "b");
    assert_string_equal(rfs_names_shown(output_map, "b"), "a");
    assert_null(rfs_names_shown(output_map, "gone"));
    assert_string_equal(rfs_names_shown(output_map, "same"), "same");
    assert_string_equal(rfs_names_shown(output_map, "\xc3\xa9\""), "\xe2\x82\xac\\/x");
    assert_ptr_equal(rfs_names_shown(output_map, other), other);
    assert_int_equal(rfs_names_dtype(output_map, "a", RFS_FLOAT32), RFS_FLOAT32);
    rfs_names_free(output_map);
    output_map = open_names("{}");
    assert_ptr_equal(rfs_names_shown(output_map, other), other);
    rfs_names_free(output_map);
}

static void expect_refused(const char *json, size_t n, const char *part)
{
    struct rfs_names *output_map = (struct rfs_names *)root;
    struct rfs_error err = {0};
    assert_true(open_text(json, n, &output_map, &err) < 0);
    assert_null(output_map);
    assert_false(err.usage);
    if (!strstr(err.text, "map.json") || !strstr(err.text, part))
        fail_msg("%s: not '%s' of %s", err.text, part, json);
}

static void test_refused_names(void **state)
{
    static const struct {
        const char *json, *part;
    } cases[] = {
        {"", "offset 0: the names cannot be read: it ends too early"},
        {"[]", "an object is expected here"},
        {"\"a\"", "an object is expected here"},
        {"null", "an object is expected here"},
        {"{\"a\": \"b\"", "offset 9: the names cannot be read: it ends too early"},
        {"{\"a\": \"b\"} x", "something follows after its end"},
        {"{\"a\": \"b\",}", "a string is expected here"},
        {"{\"a\" \"b\"}", "a colon is expected here"},
        {"{a: \"b\"}", "a string is expected here"},
        {"{\"a\": 1}", "parameter 'a': its value is neither a text nor null"},
        {"{\"a\": true}", "neither a text nor null"},
        {"{\"weight_map\": {\"a\": \"b\"}}", "parameter 'weight_map': its value is"},
        {"{\"a\": [\"b\"]}", "neither a text nor null"},
        {"{\"a\": \"b\", \"a\": \"c\"}", "parameter 'a': it comes twice"},
        {"{\"a\": null, \"\\u0061\": null}", "it comes twice"},
        {"{\"a\": \"c\", \"b\": \"c\"}",
         "parameter 'b': another parameter is shown by the same name"},
        {"{\"a\": \"\"}", "parameter 'a': the name is empty"},
        {"{\"\": \"a\"}", "the name is empty"},
        {"{\"a\": \"b\\nc\"}", "parameter 'a': the name has a control character"},
        {"{\"a\": \"b\nc\"}", "a control character in a string"},
        {"{\"a\\u007f\": \"b\"}", "the name has a control character"},
        {"{\"a\": \"b\\u0000c\"}", "a string with a NUL"},
        {"{\"a\\\\\\u0000\": \"b\"}", "a string with a NUL"},
        {"{\"a\": \"__metadata__\"}", "__metadata__"},
        {"{\"a\": \"\xc3\"}", "a string that is not UTF-8"},
        {"{\"a\": \"\\ud800\"}", "half a surrogate pair is not a character"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect_refused(cases[i].json, strlen(cases[i].json), cases[i].part);
    expect_refused("{\"a\": \"b\0\"}", 11, "a control character in a string");
    struct rfs_names *output_map =
        open_names("{\"a\\\\u0000\": \"b\"}"); /* a backslash, not a NUL */
    assert_string_equal(rfs_names_shown(output_map, "a\\u0000"), "b");
    rfs_names_free(output_map);
}

static void test_large_files(void **state)
{
    const size_t most = (size_t)64 << 10, huge = ((size_t)64 << 20) + 1;
    char *text = malloc(huge);
    (void)state;
    assert_non_null(text);
    for (size_t over = 0; over < 2; over++) {
        size_t n = (size_t)sprintf(text, "{\"a\": \"");
        memset(text + n, 'x', most + over);
        n += most + over;
        memcpy(text + n, "\"}", 2);
        if (over)
            expect_refused(text, n + 2, "the name has more than 64 KiB");
        else {
            struct rfs_names *output_map;
            assert_int_equal(open_text(text, n + 2, &output_map, NULL), 0);
            assert_int_equal(strlen(rfs_names_shown(output_map, "a")), most);
            rfs_names_free(output_map);
        }
    }
    memset(text, ' ', huge);
    text[0] = '{';
    text[huge - 1] = '}';
    expect_refused(text, huge, "larger than");
    memset(text, '[', 100000);
    memcpy(text, "{\"a\":", 5);
    expect_refused(text, 100000, "neither a text nor null");
    free(text);
    const struct rfs_names_config config = {.names = tree_path(root, "missing.json")};
    struct rfs_names *output_map;
    struct rfs_error err = {0};
    assert_int_equal(rfs_names_open(&config, &output_map, &err), -ENOENT);
    assert_non_null(strstr(err.text, "cannot be read"));
}

static void test_dtypes(void **state)
{
    static const struct {
        const char *rules, *name;
        enum rfs_dtype from, to;
    } cases[] = {
        {"bfloat16", "w", RFS_FLOAT32, RFS_BFLOAT16},
        {"bfloat16", "w", RFS_FLOAT64, RFS_BFLOAT16},
        {"bfloat16", "w", RFS_FLOAT16, RFS_BFLOAT16},
        {"bfloat16", "w", RFS_BFLOAT16, RFS_BFLOAT16},
        {"bfloat16", "w", RFS_FLOAT8_E4M3FN, RFS_BFLOAT16},
        {"bfloat16", "w", RFS_FLOAT8_E5M2, RFS_BFLOAT16},
        {"bfloat16", "w", RFS_HIFLOAT8, RFS_HIFLOAT8},
        {"bfloat16", "w", RFS_INT32, RFS_INT32},
        {"bfloat16", "w", RFS_BOOL, RFS_BOOL},
        {"bfloat16", "w", RFS_COMPLEX64, RFS_COMPLEX64},
        {"bfloat16", "w", RFS_STR, RFS_STR},
        {"w=float16", "w", RFS_INT64, RFS_INT64}, /* not even if it is named */
        {"Float64", "w", RFS_FLOAT16, RFS_FLOAT64},
        {"F32", "w", RFS_FLOAT16, RFS_FLOAT32},
        {"bf16", "w", RFS_FLOAT16, RFS_BFLOAT16},
        {"keep", "w", RFS_FLOAT16, RFS_FLOAT16},
        {"*.norm.*=float32", "a.norm.b", RFS_FLOAT16, RFS_FLOAT32},
        {"*.norm.*=float32", "a.b", RFS_FLOAT16, RFS_FLOAT16},
        {"bfloat16;*.norm.*=float32;lm_head.*=keep", "a.norm.b", RFS_FLOAT16, RFS_FLOAT32},
        {"bfloat16;*.norm.*=float32;lm_head.*=keep", "lm_head.w", RFS_FLOAT32, RFS_FLOAT32},
        {"bfloat16;*.norm.*=float32;lm_head.*=keep", "a.w", RFS_FLOAT32, RFS_BFLOAT16},
        {" a* = float16 ; *=float64 ; bfloat16", "ab", RFS_FLOAT32, RFS_FLOAT16},
        {" a* = float16 ; *=float64 ; bfloat16", "b", RFS_FLOAT32, RFS_FLOAT64},
        {"a=b=float16", "a=b", RFS_FLOAT32, RFS_FLOAT16},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct rfs_names *output_map = open_dtype(cases[i].rules);
        const enum rfs_dtype to = rfs_names_dtype(output_map, cases[i].name, cases[i].from);
        if (to != cases[i].to)
            fail_msg("%s: %s of %s is %s", cases[i].rules, rfs_dtype_name(cases[i].from),
                     cases[i].name, rfs_dtype_name(to));
        assert_string_equal(rfs_names_shown(output_map, "w"), "w");
        rfs_names_free(output_map);
    }
}

static void test_refused_dtypes(void **state)
{
    static const struct {
        const char *rules, *part;
    } cases[] = {
        {"", "'' is not float16, bfloat16, float32, float64 or keep"},
        {"int8", "'int8' is not"},
        {"float8_e4m3fn", "is not"},
        {"bfloat16;", "'' is not"},
        {";bfloat16", "'' is not"},
        {"bfloat16;float16", "two rules are without a pattern"},
        {"a=", "'' is not"},
        {"=float16", "a rule has no pattern"},
        {"a=float16=", "'' is not"},
        {"bfloat16 float16", "is not"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct rfs_names_config config = {.dtype = cases[i].rules};
        struct rfs_names *output_map = (struct rfs_names *)root;
        struct rfs_error err = {0};
        assert_int_equal(rfs_names_open(&config, &output_map, &err), -EINVAL);
        assert_null(output_map);
        assert_true(err.usage);
        if (!strstr(err.text, cases[i].part))
            fail_msg("%s: %s", cases[i].rules, err.text);
    }
}

static void test_choices(void **state)
{
    static const struct {
        const char *only, *drop, *name;
        bool shown;
    } cases[] = {
        {"a.*", NULL, "a.b", true},         {"a.*", NULL, "b.a.b", false},
        {"a.*;b.*", NULL, "b.c", true},     {" a.* ; b.* ", NULL, "b.c", true},
        {"a b;c", NULL, "a b", true},       {NULL, "a.*", "a.b", false},
        {NULL, "a.*", "b", true},           {NULL, "*.[!a-c];x", "w.b", true},
        {NULL, "*.[!a-c];x", "w.d", false}, {"a.*", "*.b", "a.b", false},
        {"a.*", "*.b", "a.c", true},        {"a.*", "*.b", "c", false},
        {"a=b", NULL, "a=b", true},         {"a\\*", NULL, "a*", true},
        {"a\\*", NULL, "ab", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct rfs_names_config config = {.only = cases[i].only, .drop = cases[i].drop};
        struct rfs_names *names;
        struct rfs_error err = {0};
        assert_int_equal(rfs_names_open(&config, &names, &err), 0);
        assert_true(rfs_names_leave_out(names));
        assert_ptr_equal(rfs_names_renamed(names, cases[i].name), cases[i].name);
        const char *shown = rfs_names_shown(names, cases[i].name);
        if (shown != (cases[i].shown ? cases[i].name : NULL))
            fail_msg("case %zu: %s", i, shown ? "shown" : "left out");
        rfs_names_free(names);
    }
}

static void test_refused_choices(void **state)
{
    static const char *const empty[] = {"", ";", "a;", ";a", "a;;b", "a; ;b"};
    char many[2 * 1025];
    (void)state;
    memset(many, 0, sizeof many);
    for (size_t i = 0; i < 1025; i++)
        memcpy(many + 2 * i, i < 1024 ? "a;" : "a", i < 1024 ? 2 : 1);
    for (size_t i = 0; i <= 2 * ARRAY_SIZE(empty) + 1; i++) {
        const char *text = i / 2 < ARRAY_SIZE(empty) ? empty[i / 2] : many;
        const struct rfs_names_config config = {.only = i % 2 ? NULL : text,
                                                .drop = i % 2 ? text : NULL};
        struct rfs_names *names = (struct rfs_names *)root;
        struct rfs_error err = {0};
        assert_int_equal(rfs_names_open(&config, &names, &err), -EINVAL);
        assert_null(names);
        assert_true(err.usage);
        assert_non_null(strstr(err.text, i % 2 ? "option drop" : "option only"));
        assert_non_null(
            strstr(err.text, text == many ? "more than 1024 patterns" : ": a pattern is empty"));
    }
    many[2 * 1024 - 1] = '\0';
    const struct rfs_names_config config = {.only = many};
    struct rfs_names *names;
    assert_int_equal(rfs_names_open(&config, &names, NULL), 0);
    rfs_names_free(names);
}

/* Patterns of dtype= that no name has as the first that it is like. */
static void test_unmet_types(void **state)
{
    const struct rfs_names_config config = {.drop = "x", .dtype = "b.*=float32;*=float16;*.w=keep"};
    struct rfs_names *names;
    const char *option;
    char text[1000] = "";
    (void)state;
    assert_int_equal(rfs_names_open(&config, &names, NULL), 0);
    rfs_names_look(names, "x"); /* left out, and a name of the source all the same */
    assert_null(rfs_names_unmet(names, &option));
    assert_true(rfs_names_unused(names, RFS_NAMES_DTYPE, text, sizeof text));
    assert_string_equal(text, "option dtype: no name is left for b.*, *.w");
    assert_int_equal(rfs_names_dtype(names, "b.w", RFS_FLOAT64), RFS_FLOAT32);
    assert_true(rfs_names_unused(names, RFS_NAMES_DTYPE, text, sizeof text));
    assert_string_equal(text, "option dtype: no name is left for *.w");
    rfs_names_free(names);

    names = open_dtype("bfloat16;b.*=float32;c=keep");
    rfs_names_look(names, "a");
    assert_string_equal(rfs_names_unmet(names, &option), "b.*");
    assert_string_equal(option, "dtype");
    rfs_names_look(names, "c");
    assert_null(rfs_names_unmet(names, &option));
    rfs_names_free(names);

    names = open_dtype("bfloat16");
    assert_null(rfs_names_unmet(names, &option));
    assert_false(rfs_names_unused(names, RFS_NAMES_DTYPE, text, sizeof text));
    rfs_names_free(names);
}

/* What no name that was looked up is like. */
static void test_unmet_choices(void **state)
{
    const struct rfs_names_config config = {.only = "a.*;b.*;c", .drop = "x;y"};
    struct rfs_names *names;
    const char *option;
    char text[1000] = "";
    (void)state;
    assert_null(rfs_names_unmet(NULL, &option));
    assert_int_equal(rfs_names_open(&config, &names, NULL), 0);
    rfs_names_shown(names, "a.w");
    rfs_names_shown(names, "c");
    assert_string_equal(rfs_names_unmet(names, &option), "b.*");
    assert_string_equal(option, "only");
    rfs_names_shown(names, "b.y");
    assert_string_equal(rfs_names_unmet(names, &option), "x");
    assert_string_equal(option, "drop");
    assert_true(rfs_names_unused(names, RFS_NAMES_DROP, text, sizeof text));
    assert_string_equal(text, "option drop: no name is like x, y");
    rfs_names_shown(names, "y"); /* which only= leaves out anyway */
    assert_null(rfs_names_unmet(names, &option));
    assert_true(rfs_names_unused(names, RFS_NAMES_DROP, text, sizeof text));
    assert_string_equal(text, "option drop: no name is like x");
    rfs_names_shown(names, "x");
    assert_false(rfs_names_unused(names, RFS_NAMES_DROP, text, sizeof text));
    rfs_names_free(names);
}

static void expect_report(const char *json, const char *const *asked, size_t n, const char *part)
{
    char text[1000] = "";
    struct rfs_names *output_map = open_names(json);
    for (size_t i = 0; i < n; i++)
        rfs_names_shown(output_map, asked[i]);
    assert_int_equal(rfs_names_unused(output_map, RFS_NAMES_MAP, text, sizeof text), part != NULL);
    if (part ? !strstr(text, part) : text[0] != '\0')
        fail_msg("%s", text);
    rfs_names_free(output_map);
}

static void test_report(void **state)
{
    static const char *const asked[] = {"a", "b", "x"};
    static const char json[] = "{\"a\": \"1\", \"b\": null, \"c\": \"2\", \"d\": \"3\"}";
    (void)state;
    expect_report(json, asked, 3,
                  "map.json: 2 of its names are not parameters of the source: c, d");
    expect_report(json, asked + 2, 1,
                  "map.json: 4 of its names are not parameters of the source: a, b, c, d");
    expect_report("{\"a\": \"1\"}", asked, 3, NULL);
    expect_report("{}", asked, 3, NULL);
    expect_report(
        "{\"1\":\"1\",\"2\":\"2\",\"3\":\"3\",\"4\":\"4\",\"5\":\"5\",\"6\":\"6\",\"7\":\"7\"}",
        asked, 3, ": 1, 2, 3, 4, 5, …");
}

/* ---- keys with stars ------------------------------------------------------------------------- */

static void test_patterns(void **state)
{
    static const struct {
        const char *json, *name, *shown;
    } cases[] = {
        {"{\"model.*\": \"*\"}", "model.a.b", "a.b"},
        {"{\"model.*\": \"*\"}", "models.a", "models.a"},
        {"{\"*\": \"net.*\"}", "", "net."},
        {"{\"*\": \"net.*\"}", "a", "net.a"},
        {"{\"*.gamma\": \"*.weight\"}", "a.gamma.gamma", "a.gamma.weight"},
        {"{\"*.gamma\": \"*.weight\"}", "a.gamma.b", "a.gamma.b"},
        {"{\"a.*.b.*.c\": \"x*y*\"}", "a.1.b.2.b.3.c", "x1y2.b.3"},
        {"{\"a.*.b.*\": \"*/*\"}", "a..b..b.", "/.b."},
        {"{\"**\": \"<*|*>\"}", "abc", "<|abc>"},
        {"{\"a*a\": \"*\"}", "a", "a"},
        {"{\"a*a\": \"b*\"}", "aa", "b"},
        {"{\"[x]?*\": \"*\"}", "[x]?y", "y"},
        {"{\"[x]?*\": \"*\"}", "xyz", "xyz"},
        {"{\"opt.*\": null}", "opt.a", NULL},
        {"{\"opt.*\": null}", "op", "op"},
        {"{\"a.*\": \"x.*\", \"a.b\": \"y\"}", "a.b", "y"},
        {"{\"a.*\": null, \"a.b\": \"y\"}", "a.b", "y"},
        {"{\"a.b.*\": \"x.*\", \"a.*\": \"y.*\"}", "a.b.c", "x.c"},
        {"{\"a.b.*\": \"x.*\", \"a.*\": \"y.*\"}", "a.c.b", "y.c.b"},
        {"{\"a.*\": \"y.*\", \"a.b.*\": \"x.*\"}", "a.b.c", "y.b.c"},
        {"{\"a.*\": \"a.*\"}", "a.b", "a.b"},
        {"{\"a*\": \"b*\"}", "a*", "b*"},
        {"{\"\u00e9*\": \"*\u00e9\"}", "\xc3\xa9x", "x\xc3\xa9"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct rfs_names *map = open_names(cases[i].json);
        const char *shown = rfs_names_renamed(map, cases[i].name);
        if (!shown != !cases[i].shown || (shown && strcmp(shown, cases[i].shown) != 0))
            fail_msg("%s of %s: %s", cases[i].name, cases[i].json, shown ? shown : "left out");
        if (shown && strcmp(shown, cases[i].name) == 0)
            assert_ptr_equal(shown, cases[i].name);
        assert_int_equal(rfs_names_check(map, NULL), 0);
        rfs_names_free(map);
    }
}

static void test_refused_patterns(void **state)
{
    static const struct {
        const char *json, *part;
    } cases[] = {
        {"{\"a*\": \"b\"}", "parameter 'a*': its value has not as many * as the name"},
        {"{\"a\": \"b*\"}", "its value has not as many * as the name"},
        {"{\"a*\": \"b**\"}", "its value has not as many * as the name"},
        {"{\"a*\": \"b*\", \"a*\": null}", "it comes twice"},
        {"{\"*****************\": null}", "the name has more than 16 *"},
    };
    struct bytes many = {0};
    char item[32];
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect_refused(cases[i].json, strlen(cases[i].json), cases[i].part);
    for (int i = 0; i < 1025; i++)
        bytes_add(&many, item,
                  (size_t)snprintf(item, sizeof item, "%s\"%d*\": null", i ? ", " : "{", i));
    bytes_add(&many, "}", 1);
    expect_refused((const char *)many.data, many.n, "more than 1024 names have a *");
    bytes_free(&many);
}

/* What a pattern makes of NAME is no name, and is refused by rfs_names_check. */
static void expect_wrong(const char *json, const char *name, const char *part)
{
    struct rfs_names *map = open_names(json);
    struct rfs_error err = {0};
    assert_ptr_equal(rfs_names_renamed(map, name), name);
    assert_int_equal(rfs_names_check(map, &err), -EINVAL);
    if (!strstr(err.text, part))
        fail_msg("%s", err.text);
    rfs_names_free(map);
}

static void test_made_names(void **state)
{
    char *name = malloc(((size_t)64 << 10) + 1);
    (void)state;
    assert_non_null(name);
    expect_wrong("{\"a*\": \"*\"}", "a", "parameter 'a*': a name that it makes is empty");
    expect_wrong("{\"*\": \"__*__\"}", "metadata", "is __metadata__");
    memset(name, 'x', (size_t)64 << 10);
    name[(size_t)64 << 10] = '\0';
    expect_wrong("{\"*\": \"y*\"}", name, "has more than 64 KiB");
    free(name);
}

static void test_unmet_map(void **state)
{
    struct rfs_names *map = open_names("{\"a\": \"b\", \"x.*\": \"*\"}");
    struct rfs_error err = {0};
    const char *option;
    char text[1000];
    (void)state;
    rfs_names_shown(map, "c");
    assert_non_null(rfs_names_unmet(map, &option));
    assert_string_equal(option, "names");
    assert_int_equal(rfs_names_fail_unmet(map, &err), -EINVAL);
    assert_non_null(
        strstr(err.text, "map.json: none of its names is a parameter of the source: a, x.*"));
    rfs_names_shown(map, "x.y");
    assert_null(rfs_names_unmet(map, &option));
    assert_true(rfs_names_unused(map, RFS_NAMES_MAP, text, sizeof text));
    assert_non_null(strstr(text, "1 of its names are not parameters of the source: a"));
    rfs_names_free(map);
    map = open_names("{}");
    assert_null(rfs_names_unmet(map, &option));
    rfs_names_free(map);
}

static void expect_other_digest(const char *one, const char *other)
{
    uint64_t a[2], b[2], c[2];
    struct rfs_names *map = open_names(one);
    assert_int_equal(rfs_names_digest(map, a), 0);
    rfs_names_free(map);
    map = open_names(other);
    assert_int_equal(rfs_names_digest(map, b), 0);
    rfs_names_free(map);
    map = open_names(one);
    assert_int_equal(rfs_names_digest(map, c), 0);
    rfs_names_free(map);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_equal(a, c, sizeof a);
}

static void test_wrappers(void **state)
{
    static const char *const cases[][2] = {
        {"w", "w"},
        {"module.w", "w"},
        {"module.module.w", "w"},
        {"a._orig_mod.module.b.w", "a.b.w"},
        {"base_model.model.model.w", "model.w"},
        {"a.base_model.w", "a.base_model.w"},
        {"submodule.w", "submodule.w"},
        {"a._fsdp_wrapped_module._checkpoint_wrapped_module.w", "a.w"},
        {"a.module", "a.module"},
        {"module.", "module."}, /* it would have no name */
        {"..w.", "..w."},
    };
    const struct rfs_names_config config = {.names = "unwrap"};
    struct rfs_error err = {0};
    struct rfs_names *names;
    const char *option;
    uint64_t digest[2];
    (void)state;

    assert_return_code(rfs_names_open(&config, &names, &err), 0);
    assert_int_equal(rfs_names_digest(names, digest), 0);
    assert_true(digest[0] != 0 || digest[1] != 0);
    assert_null(rfs_names_unmet(names, &option));
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_string_equal(rfs_names_renamed(names, cases[i][0]), cases[i][1]);
    assert_int_equal(rfs_names_check(names, &err), -EINVAL); /* that without a name */
    rfs_names_free(names);
}

static void test_digests_of_patterns(void **state)
{
    (void)state;
    expect_other_digest("{\"a*\": \"*\"}", "{\"a*\": \"b*\"}");
    expect_other_digest("{\"a*\": \"*\"}", "{\"a*\": null}");
    expect_other_digest("{\"a*\": \"*\", \"b*\": \"c*\"}", "{\"b*\": \"c*\", \"a*\": \"*\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_asked_for),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large_files, set_up, tear_down),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test_setup_teardown(test_refused_dtypes, set_up, tear_down),
        cmocka_unit_test(test_choices),
        cmocka_unit_test_setup_teardown(test_refused_choices, set_up, tear_down),
        cmocka_unit_test(test_unmet_choices),
        cmocka_unit_test(test_unmet_types),
        cmocka_unit_test_setup_teardown(test_report, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_patterns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused_patterns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_made_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unmet_map, set_up, tear_down),
        cmocka_unit_test(test_wrappers),
        cmocka_unit_test_setup_teardown(test_digests_of_patterns, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("plan: outward", tests, NULL, NULL);
}
