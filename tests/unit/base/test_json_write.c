/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of JSON: commas, lines and escapes of each form, in a buffer and in a file. */
#include "base/json_write.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

typedef void build(struct rfs_json_write *json);

/* The same by a buffer and by a file. */
static void is(build *members, struct rfs_json_write style, const char *text)
{
    struct rfs_bytes bytes = {0};
    struct rfs_json_write json = style;
    char *from_file = NULL;
    size_t size = 0;

    json.bytes = &bytes;
    members(&json);
    assert_false(json.failed);
    assert_true(rfs_bytes_put(&bytes, "", 1));
    assert_string_equal((char *)bytes.data, text);
    json = style;
    json.file = open_memstream(&from_file, &size);
    assert_non_null(json.file);
    members(&json);
    assert_int_equal(fclose(json.file), 0);
    assert_string_equal(from_file, text);
    free(bytes.data);
    free(from_file);
}
#define IS(members, text, ...) is(members, (struct rfs_json_write){__VA_ARGS__}, text)

static void put_numbers(struct rfs_json_write *json)
{
    rfs_json_array(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, NULL, UINT64_MAX);
    rfs_json_put_i64(json, NULL, INT64_MIN);
    rfs_json_put_bool(json, NULL, true);
    rfs_json_put_bool(json, NULL, false);
    rfs_json_put_null(json, NULL);
    rfs_json_put_text(json, NULL, NULL);
    rfs_json_print(json, NULL, "%.3f", 1.5);
    rfs_json_print(json, NULL, "%0200d", 1);
    rfs_json_end(json);
}

static void test_numbers(void **state)
{
    char text[512];

    (void)state;
    snprintf(text, sizeof text,
             "[18446744073709551615,-9223372036854775808,true,false,null,null,1.500,%0200d]", 1);
    IS(put_numbers, text, .indent = 0);
}

static void put_members(struct rfs_json_write *json, enum rfs_json_form form)
{
    static const uint64_t dims[] = {2, 4};
    static const uint32_t ranks[] = {0, 1};

    rfs_json_object(json, NULL, form);
    rfs_json_put_u64(json, "a", 1);
    rfs_json_array(json, "rows", form);
    for (int i = 0; i < 2; i++) {
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_u64s(json, "dims", RFS_JSON_SPACED, dims, 2);
        rfs_json_put_u32s(json, "ranks", RFS_JSON_TIGHT, ranks, 2);
        rfs_json_end(json);
    }
    rfs_json_end(json);
    rfs_json_object(json, "none", form);
    rfs_json_end(json);
    rfs_json_array(json, "neither", form);
    rfs_json_end(json);
    rfs_json_put_text(json, "z", "");
    rfs_json_finish(json);
}

static void put_tight(struct rfs_json_write *json)
{
    put_members(json, RFS_JSON_TIGHT);
}

static void put_spaced(struct rfs_json_write *json)
{
    put_members(json, RFS_JSON_SPACED);
}

static void put_rows(struct rfs_json_write *json)
{
    put_members(json, RFS_JSON_ROWS);
}

static void put_lines(struct rfs_json_write *json)
{
    put_members(json, RFS_JSON_LINES);
}

#define ROW "{\"dims\":[2, 4],\"ranks\":[0,1]}"

static void test_forms(void **state)
{
    (void)state;
    IS(put_tight, "{\"a\":1,\"rows\":[" ROW "," ROW "],\"none\":{},\"neither\":[],\"z\":\"\"}\n",
       .indent = 2);
    IS(put_spaced,
       "{\"a\": 1, \"rows\": [" ROW ", " ROW "], \"none\": {}, \"neither\": [], \"z\": \"\"}\n",
       .indent = 2);
    IS(put_rows,
       "{\"a\":1,\n\"rows\":[" ROW ",\n" ROW "],\n\"none\":{},\n\"neither\":[],\n\"z\":\"\"}\n",
       .indent = 0);
    IS(put_lines,
       "{\n  \"a\": 1,\n  \"rows\": [\n    " ROW ",\n    " ROW "\n  ],\n"
       "  \"none\": {},\n  \"neither\": [],\n  \"z\": \"\"\n}\n",
       .indent = 2);
}

static void put_breaks(struct rfs_json_write *json)
{
    rfs_json_object(json, NULL, RFS_JSON_LINES);
    rfs_json_put_u64(json, "a", 1);
    rfs_json_stay(json);
    rfs_json_object(json, "b", RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "c", 1);
    rfs_json_break(json);
    rfs_json_put_u64(json, "d", 1);
    rfs_json_put_u64(json, "e", 1);
    rfs_json_end(json);
    rfs_json_put_u64(json, "f", 1);
    rfs_json_finish(json);
}

static void test_breaks(void **state)
{
    (void)state;
    IS(put_breaks, "{\n\"a\": 1, \"b\": {\"c\":1,\n\"d\":1,\"e\":1},\n\"f\": 1\n}\n", .indent = 0);
}

#define ODD "\"\\\b\t\n\f\r\x01\x1f\x7f\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"

static void put_odd(struct rfs_json_write *json)
{
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(json, ODD, ODD);
    rfs_json_end(json);
}

static void put_foreign(struct rfs_json_write *json)
{
    rfs_json_put_text(json, NULL, "\xff\xe2\x80\xae");
}

static void put_nul(struct rfs_json_write *json)
{
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_key(json, "a\0b", 3);
    rfs_json_put_null(json, NULL);
    rfs_json_end(json);
}

static void put_part(struct rfs_json_write *json)
{
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_key(json,
                     "\x01"
                     "bc",
                     2);
    rfs_json_put_null(json, NULL);
    rfs_json_end(json);
}

#define SHOWN                                                                                      \
    "\"\\\"\\\\\\\\x08\\\\x09\\\\x0a\\\\x0c\\\\x0d\\\\x01\\\\x1f\\\\x7f\xc3\xa9\xe2\x82\xac\xf0"   \
    "\x9f\x98\x80\""
#define UTF8 "\"\\\"\\\\\\b\\t\\n\\f\\r\\u0001\\u001f\x7f\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""
#define ASCII "\"\\\"\\\\\\b\\t\\n\\f\\r\\u0001\\u001f\\u007f\\u00e9\\u20ac\\ud83d\\ude00\""

static void test_escapes(void **state)
{
    (void)state;
    IS(put_odd, "{" SHOWN ":" SHOWN "}", .escapes = RFS_JSON_SHOWN);
    IS(put_odd, "{" UTF8 ":" UTF8 "}", .escapes = RFS_JSON_UTF8);
    IS(put_odd, "{" ASCII ":" ASCII "}", .escapes = RFS_JSON_ASCII);
    IS(put_foreign, "\"\\\\xff\\\\xe2\\\\x80\\\\xae\"", .escapes = RFS_JSON_SHOWN);
    IS(put_part, "{\"\\\\x01b\":null}", .escapes = RFS_JSON_SHOWN);
    IS(put_nul, "{\"a\\u0000b\":null}", .escapes = RFS_JSON_UTF8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_breaks),
        cmocka_unit_test(test_escapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
