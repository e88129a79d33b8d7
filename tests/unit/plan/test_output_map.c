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
    const struct rfs_names_config config = {NULL, NULL};
    struct rfs_names *output_map = (struct rfs_names *)&config;
    const char *name = "w";
    (void)state;
    assert_int_equal(rfs_names_open(&config, &output_map, NULL), 0);
    assert_null(output_map);
    assert_ptr_equal(rfs_names_shown(NULL, name), name);
    assert_int_equal(rfs_names_dtype(NULL, name, RFS_FLOAT32), RFS_FLOAT32);
    assert_false(rfs_names_unused(NULL, NULL, 0));
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

static void expect_report(const char *json, const char *const *asked, size_t n, const char *part)
{
    char text[1000] = "";
    struct rfs_names *output_map = open_names(json);
    for (size_t i = 0; i < n; i++)
        rfs_names_shown(output_map, asked[i]);
    assert_int_equal(rfs_names_unused(output_map, text, sizeof text), part != NULL);
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
    expect_report(json, asked + 2, 1, "map.json: none of its names is a parameter of the source");
    expect_report("{\"a\": \"1\"}", asked, 3, NULL);
    expect_report("{}", asked, 3, NULL);
    expect_report(
        "{\"1\":\"1\",\"2\":\"2\",\"3\":\"3\",\"4\":\"4\",\"5\":\"5\",\"6\":\"6\",\"7\":\"7\"}",
        asked, 3, ": 1, 2, 3, 4, 5, …");
}

static void test_names_in_the_source(void **state)
{
    struct rfs_names *map = open_names("{\"a\": \"b\", \"c\": null, \"b\": \"x\"}");
    const char *own = "own";
    (void)state;
    assert_string_equal(rfs_names_source(map, "b"), "a");
    assert_string_equal(rfs_names_source(map, "x"), "b");
    assert_ptr_equal(rfs_names_source(map, own), own);
    assert_ptr_equal(rfs_names_source(NULL, own), own);
    rfs_names_free(map);
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
        cmocka_unit_test_setup_teardown(test_report, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_in_the_source, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("plan: outward", tests, NULL, NULL);
}
