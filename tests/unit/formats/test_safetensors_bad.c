/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files that are refused, each with a message that says where and why. */
#include "formats/safetensors/safetensors.h"
#include "tests/unit/store/writer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void put_length(struct bytes *file, uint64_t n)
{
    unsigned char length[8];
    for (unsigned i = 0; i < 8; i++)
        length[i] = (unsigned char)(n >> 8 * i);
    bytes_add(file, length, 8);
}

/*
 * Walks the file, which must fail with a message with all of these parts; frees it. SIZE: what it
 * claims.
 */
static void refused_as(int code, struct bytes *file, uint64_t size, const char *const *parts)
{
    struct rfs_tables tables = tables_new();
    struct rfs_index *index;
    struct rfs_error err = {0};
    struct memory memory = {.p = file->p, .n = file->n};
    assert_int_equal(
        rfs_safetensors_walk(RFS_BYTES_SOURCE(memory_read, &memory, size, "rank_0/x.safetensors"),
                             &tables, NULL, &index, &err),
        code);
    assert_int_equal(err.code, code);
    assert_null(index);
    assert_ptr_equal(strstr(err.text, "rank_0/x.safetensors: "), err.text);
    assert_non_null(strstr(err.text, "; try: "));
    for (; *parts; parts++)
        if (!strstr(err.text, *parts))
            fail_msg("no '%s' in: %s", *parts, err.text);
    assert_int_equal(rfs_safetensors_walk(RFS_BYTES_SOURCE(memory_read, &memory, size, "x"),
                                          &tables, NULL, &index, NULL),
                     code);
    tables_free(&tables);
    bytes_free(file);
}

/* A file with this header and so much data. */
static void refused_header(int code, const void *header, size_t n, size_t data,
                           const char *const *parts)
{
    struct bytes file = {0};
    put_length(&file, n);
    bytes_add(&file, header, n);
    bytes_add(&file, filler(data), data);
    refused_as(code, &file, file.n, parts);
}
#define REFUSED(data, header, ...)                                                                 \
    refused_header(-EINVAL, header, sizeof(header) - 1, data,                                      \
                   (const char *const[]){__VA_ARGS__, NULL})
#define REFUSED_EMPTY(header, ...)                                                                 \
    refused_header(-ENODATA, header, sizeof(header) - 1, 0,                                        \
                   (const char *const[]){__VA_ARGS__, NULL})
#define REFUSED_FILE(file, size, ...)                                                              \
    refused_as(-EINVAL, file, size, (const char *const[]){__VA_ARGS__, NULL})

/* A description without the braces around it. */
#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"
#define GOOD TENSOR("good", "I8", "[4]", 0, 4)

static void test_start(void **state)
{
    (void)state;
    struct bytes file = {0};
    REFUSED_FILE(&file, 0, "the file is empty");
    bytes_add(&file, "\x10\0\0", 3);
    REFUSED_FILE(&file, file.n, "truncated in its header");
    put_length(&file, 1000);
    bytes_text(&file, "{\"w\"");
    REFUSED_FILE(&file, file.n, "truncated in its header", "it has 12 bytes, the header 1000");
    put_length(&file, UINT64_C(1) << 30); /* a header of a gigabyte, in a file that has it */
    REFUSED_FILE(&file, UINT64_C(1) << 31, "header would have 1073741824 bytes",
                 "no more than 100000000");
    put_length(&file, UINT64_MAX);
    REFUSED_FILE(&file, file.n, "header would have 18446744073709551615 bytes");
    bytes_text(&file, "version https://git-lfs.github.com/spec/v1\noid sha256:00\n");
    REFUSED_FILE(&file, file.n, "Git LFS pointer", "git lfs pull");
    bytes_add(&file, "\x0a\x96\x01\x0a\x01w\x12\x90\x01\x08\x04", 11);
    REFUSED_FILE(&file, file.n, "not a safetensors file");
}

static void test_json(void **state)
{
    (void)state;
    REFUSED(0, "", "offset 8: ", "does not begin with a brace");
    REFUSED(0, " {}", "offset 8: ", "does not begin with a brace");
    REFUSED(0, "[]", "does not begin with a brace");
    REFUSED_EMPTY("{}", "holds no parameters");
    REFUSED_EMPTY("{\"__metadata__\":{\"format\":\"ms\"}}", "holds no parameters");
    REFUSED(4, "{}", "holds no parameters");
    REFUSED(4, "{" GOOD, "ends too early");
    REFUSED(4, "{" GOOD "}x", "something follows");
    REFUSED(4, "{" GOOD "}\0", "something follows");
    REFUSED(4, "{" GOOD ",}", "a string is expected");
    REFUSED(4, "{" GOOD " " GOOD "}", "a comma or the end is expected");
    REFUSED(4, "{\"w\":[]}", "offset 13: ", "parameter 'w'", "an object is expected");
    REFUSED(4, "{\"w\":[\"I8\",[4]]}", "offset 13: ", "an object is expected");
    REFUSED(4, "{\"w\":[\"I8\",[4],[0,4],1]}", "offset 13: ", "an object is expected");
    REFUSED(4, "{\"w\":[\"I8\",4]}", "an array is expected");
    REFUSED(4, "{\"w\":{\"dtype\":1}}", "parameter 'w'", "a string is expected");
    REFUSED(4, "{\"w\":{\"shape\":4}}", "an array is expected");
    REFUSED(4, "{\"w\":{\"shape\":[4.0]}}", "a whole number is expected");
    REFUSED(4, "{\"w\":{\"shape\":[-4]}}", "a whole number is expected");
    REFUSED(4, "{\"w\":{\"shape\":[18446744073709551616]}}", "above 2^64 - 1");
    REFUSED(4, "{\"w\":{\"data_offsets\":[0]}}", "a comma or the end is expected");
    REFUSED(4, "{\"w\":{\"data_offsets\":[0,1,2]}}", "another character is expected");
    REFUSED(4, "{\"w\":{\"dtype\":\"I8\",\"dtype\":\"I8\"}}", "this key comes twice");
    REFUSED(4, "{\"w\":{\"shape\":[4],\"data_offsets\":[0,4]}}", "lacks its dtype");
    REFUSED(4, "{\"w\":{\"dtype\":\"I8\",\"data_offsets\":[0,4]}}", "lacks its shape");
    REFUSED(4, "{\"w\":{\"dtype\":\"I8\",\"shape\":[4]}}", "lacks its data_offsets");
}

static void test_metadata(void **state)
{
    (void)state;
    REFUSED(4, "{\"__metadata__\":{\"a\":1}," GOOD "}", "a string is expected");
    REFUSED(4, "{\"__metadata__\":[]," GOOD "}", "an object is expected");
    REFUSED(4, "{\"__metadata__\":{}," GOOD ",\"__metadata__\":{}}", "__metadata__ comes twice");
    REFUSED(4, "{\"__metadata__\":{\"crc_num\":\"1\",\"crc_num\":\"2\"}," GOOD "}",
            "comes twice in the metadata");
    REFUSED(
        4,
        "{\"__metadata__\":{\"remove_redundancy\":\"True\",\"remove_redundancy\":\"False\"}," GOOD
        "}",
        "comes twice in the metadata");
    REFUSED(8, "{\"__metadata__\":{\"w\":\"Int4\"}," TENSOR("w", "F32", "[2]", 0, 8) "}",
            "parameter 'w': ", "is F32, but the metadata says Int4");
}

static void test_deep(void **state)
{
    (void)state;
    struct bytes header = {0};
    bytes_text(&header, "{\"w\":{\"x\":");
    for (unsigned i = 0; i < 1000000; i++)
        bytes_text(&header, "[");
    refused_header(-EINVAL, header.p, header.n, 0,
                   (const char *const[]){"it is nested too deep", NULL});
    bytes_free(&header);
}

static void test_names(void **state)
{
    (void)state;
    REFUSED(1, "{" TENSOR("a\\u0000b", "I8", "[1]", 0, 1) "}", "a string with a NUL");
    REFUSED(1, "{" TENSOR("\\ud800", "I8", "[1]", 0, 1) "}", "half a surrogate pair");
    REFUSED(1, "{" TENSOR("\xed\xa0\x80", "I8", "[1]", 0, 1) "}", "not UTF-8");
    REFUSED(1, "{" TENSOR("\xff", "I8", "[1]", 0, 1) "}", "offset 9: ", "not UTF-8");
    REFUSED(1, "{" TENSOR("a\nb", "I8", "[1]", 0, 1) "}", "a control character");
    REFUSED(8, "{" GOOD "," TENSOR("good", "I8", "[4]", 4, 8) "}",
            "parameter 'good': ", "comes twice");
    REFUSED(8, "{" GOOD "," TENSOR("\\u0067ood", "I8", "[4]", 4, 8) "}",
            "parameter 'good': ", "comes twice");
    struct bytes header = {0};
    bytes_text(&header, "{\"");
    for (unsigned i = 0; i < (1 << 20) + 1; i++)
        bytes_text(&header, "n");
    bytes_text(&header, "\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}");
    refused_header(-EINVAL, header.p, header.n, 1,
                   (const char *const[]){"a name of more than 2^20 bytes", NULL});
    bytes_free(&header);
}

static void test_tensors(void **state)
{
    (void)state;
    REFUSED(4, "{" TENSOR("w", "F5", "[8]", 0, 4) "}",
            "parameter 'w': ", "unknown element type 'F5'");
    REFUSED(4, "{" TENSOR("w", "f32", "[1]", 0, 4) "}", "unknown element type 'f32'");
    REFUSED(1, "{" TENSOR("w", "I8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 0, 1) "," GOOD "}",
            "parameter 'good': ", "begin at 0"); /* 16 dimensions are not too many */
    REFUSED(8, "{" TENSOR("w", "I8", "[4294967296,4294967296]", 0, 8) "}",
            "multiply to more than 2^63");
    REFUSED(2, "{" TENSOR("w", "F4", "[3]", 0, 2) "}", "parameter 'w': is of type F4, and 2 of",
            "along the last dimension it has 3");
    REFUSED(3, "{" TENSOR("w", "F6_E2M3", "[2,2]", 0, 3) "}", "is of type F6_E2M3, and 4 of its");
    REFUSED(1, "{" TENSOR("w", "F4", "[]", 0, 1) "}", "is of type F4, and 2 of its numbers");
    REFUSED(0, "{" TENSOR("w", "I8", "[9223372036854775807,0,9223372036854775807]", 0, 0) "}",
            "multiply to more than 2^63");
    REFUSED(8, "{" TENSOR("w", "F64", "[4611686018427387904]", 0, 8) "}", "more than 2^63");
    REFUSED(7, "{" TENSOR("w", "F32", "[2]", 0, 7) "}", "data_offsets are 0 and 7",
            "make it 8 bytes");
    REFUSED(8, "{" TENSOR("w", "F32", "[]", 0, 8) "}", "make it 4 bytes");
}

static void test_dimensions(void **state)
{
    (void)state;
    struct rfs_tables tables = tables_new();
    struct bytes file = {0};
    struct rfs_index *index;
    struct rfs_error err = {0};
    const char *header = "{\"w\":{\"dtype\":\"I8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"
                         "\"data_offsets\":[0,1]}}";
    put_length(&file, strlen(header));
    bytes_text(&file, header);
    bytes_add(&file, "x", 1);
    struct memory memory = {.p = file.p, .n = file.n};
    assert_int_equal(rfs_safetensors_walk(RFS_BYTES_SOURCE(memory_read, &memory, file.n, "x"),
                                          &tables, NULL, &index, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "more than 16 dimensions"));
    tables_free(&tables);
    bytes_free(&file);
}

static void test_places(void **state)
{
    (void)state;
    REFUSED(8, "{" GOOD "," TENSOR("w", "I8", "[4]", 2, 6) "}",
            "parameter 'w': ", "begin at 2, but the one before it ends at 4", "overlap");
    REFUSED(12, "{" GOOD "," TENSOR("w", "I8", "[4]", 8, 12) "}",
            "parameter 'w': ", "begin at 8, but the one before it ends at 4", "hole");
    REFUSED(8, "{" TENSOR("w", "I8", "[4]", 4, 8) "," TENSOR("v", "I8", "[4]", 4, 8) "}",
            "begin at 4, but the one before it ends at 0", "hole");
    REFUSED(12, "{" TENSOR("w", "I8", "[4]", 8, 12) "," GOOD "}",
            "parameter 'w': ", "begin at 8, but the one before it ends at 4", "hole");
    REFUSED(8, "{" TENSOR("w", "I8", "[4]", 4, 8) "," TENSOR("v", "I8", "[5]", 0, 5) "}",
            "parameter 'w': ", "begin at 4, but the one before it ends at 5", "overlap");
    REFUSED(6,
            "{" TENSOR("w", "I8", "[4]", 2, 6) "," TENSOR("e", "I8", "[0]", 3,
                                                          3) "," TENSOR("v", "I8", "[2]", 0, 2) "}",
            "parameter 'e': ", "begin at 3, but the one before it ends at 6", "overlap");
    REFUSED(8, "{" GOOD "," TENSOR("w", "I8", "[4]", 0, 4) "}", "overlap");
    REFUSED(8, "{" TENSOR("w", "I8", "[4]", 0, 18446744073709551615) "}", "make it 4 bytes");
    REFUSED(8, "{" GOOD "," TENSOR("w", "I8", "[4]", 4, 3) "}", "data_offsets are 4 and 3");
    REFUSED(7, "{" GOOD "," TENSOR("w", "I8", "[4]", 4, 8) "}",
            "parameter 'w': ", "the file is truncated",
            "ends at 8, and the file has 7 bytes of data");
    REFUSED(5, "{" GOOD "}", "1 bytes follow the last tensor");
    REFUSED(0, "{" TENSOR("w", "I8", "[9000000000000000000]", 0, 9000000000000000000) "}",
            "the file is truncated");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start),      cmocka_unit_test(test_json),
        cmocka_unit_test(test_metadata),   cmocka_unit_test(test_deep),
        cmocka_unit_test(test_names),      cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_dimensions), cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
