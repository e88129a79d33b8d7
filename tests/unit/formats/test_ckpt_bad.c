/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are refused, each with a message that says where and why. */
#include "tests/unit/store/writer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t two_three[] = {2, 3};

/* Walks the file, which must fail with CODE and a message with all of these parts; frees it. */
static void refused(struct bytes *file, int code, const char *const *parts)
{
    struct rfs_tables tables = tables_new();
    struct rfs_index *index;
    struct rfs_error err = {0};
    struct memory memory = {.p = file->p, .n = file->n};
    const int rc = rfs_ckpt_walk(RFS_BYTES_SOURCE(memory_read, &memory, file->n, "rank_0/x.ckpt"),
                                 &tables, &index, &err);
    assert_int_equal(rc, code);
    assert_int_equal(err.code, code);
    assert_null(index);
    assert_ptr_equal(strstr(err.text, "rank_0/x.ckpt: "), err.text);
    for (; *parts; parts++)
        if (!strstr(err.text, *parts))
            fail_msg("no '%s' in: %s", *parts, err.text);
    /* Without an error to fill it fails the same way. */
    assert_int_equal(
        rfs_ckpt_walk(RFS_BYTES_SOURCE(memory_read, &memory, file->n, "x"), &tables, &index, NULL),
        code);
    tables_free(&tables);
    bytes_free(file);
}
#define REFUSED(file, ...) refused(file, -EINVAL, (const char *const[]){__VA_ARGS__, NULL})
#define REFUSED_EMPTY(file, ...) refused(file, -ENODATA, (const char *const[]){__VA_ARGS__, NULL})

/* A good value before the bad one; its length is the offset of what follows. */
static struct bytes begun(void)
{
    struct bytes file = {0};
    put_tensor(&file, "good", two_three, 2, "Int8", filler(6), 6);
    assert_int_equal(file.n, 28);
    return file;
}

static void put_parts(struct bytes *file, const char *tag, const struct bytes *tensor)
{
    struct bytes value = {0};
    if (tag)
        bytes_field(&value, 1, tag, strlen(tag));
    if (tensor)
        bytes_field(&value, 2, tensor->p, tensor->n);
    put_value(file, &value);
    bytes_free(&value);
}

static void test_other_files(void **state)
{
    (void)state;
    struct bytes file = {0};
    REFUSED_EMPTY(&file, "the file is empty", "try: ");
    bytes_add(&file, "crc_num\0\0\0\0\0\0\1\2\3\4", 17);
    REFUSED_EMPTY(&file, "holds no parameters");
    bytes_field(&file, 5, "unknown only", 12);
    REFUSED(&file, "holds no parameters");
    bytes_text(&file, "version https://git-lfs.github.com/spec/v1\noid sha256:00\n");
    REFUSED(&file, "Git LFS pointer", "git lfs pull");
    bytes_add(&file, "\xda\x5e\x3a\x7f\x08\1\0\0", 8);
    REFUSED(&file, "encrypted (SM4-CBC)", "key_file=FILE", "key_env=NAME", "key_fd=N");
    bytes_add(&file, "\0\0\0\0\0\0\0\0", 8);
    REFUSED(&file, "offset 0: ", "not a protobuf field");
    bytes_text(&file, "just some text, which is not a checkpoint at all");
    REFUSED(&file, "offset ", "not a checkpoint");
    bytes_add(&file, "\x0b\x0c", 2);
    REFUSED(&file, "offset 0: ", "not a parameter");
}

static void test_truncated(void **state)
{
    (void)state;
    struct bytes file = begun();
    put_tensor(&file, "w", two_three, 2, "Float32", filler(24), 24);
    file.n -= 1;
    REFUSED(&file, "offset 50: parameter 'w': ", "truncated in a tensor",
            "ends after 23 of its 24 bytes");
    file = begun();
    put_tensor(&file, "weight", two_three, 2, "Float32", filler(24), 24);
    file.n = 28 + 14; /* after the name */
    REFUSED(&file, "offset 42: parameter 'weight': ", "in the middle of a header", "truncated");
    file = begun();
    put_tensor(&file, "weight", two_three, 2, "Float32", filler(24), 24);
    file.n = 28 + 7; /* in the name */
    REFUSED(&file, "offset 35: ", "in the middle of a header");
    file = begun();
    bytes_add(&file, "crc_num\0\0\0", 10); /* half a trailer */
    REFUSED(&file, "x.ckpt: offset ");
}

static void test_wire(void **state)
{
    (void)state;
    struct bytes file = begun();
    bytes_add(&file, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11);
    REFUSED(&file, "offset 29: ", "more than 64 bits");
    file = begun();
    bytes_add(&file, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
    REFUSED(&file, "offset 29: ", "runs over the end");
    file = begun();
    bytes_add(&file, "\x2b\x33", 2); /* group 5 {, group 6 {, and no end */
    REFUSED(&file, "middle of a header");
    file = begun();
    bytes_add(&file, "\x2b\x34", 2); /* group 5 {, end of group 6 */
    REFUSED(&file, "group ends that did not begin");
    file = begun();
    for (unsigned i = 0; i < 100000; i++)
        bytes_add(&file, "\x2b", 1);
    REFUSED(&file, "nested more than 64 deep");
    file = begun();
    bytes_add(&file, "\x2d\x01\x02", 3); /* 4 bytes announced */
    REFUSED(&file, "offset 31: ", "truncated");

    /* A tensor that is longer than the value around it. */
    file = begun();
    bytes_add(&file, "\x0a\x05\x0a\x01w\x12\x7f", 7);
    bytes_add(&file, filler(200), 200);
    REFUSED(&file, "offset 34: parameter 'w': ", "runs over the end of the message");
}

static void test_value(void **state)
{
    (void)state;
    struct bytes tensor = tensor_message(two_three, 2, "Int8", filler(6), 6);
    struct bytes value = {0};
    struct bytes file = begun();
    put_parts(&file, NULL, &tensor);
    REFUSED(&file, "offset 28: ", "without a name");
    file = begun();
    put_parts(&file, "w", NULL);
    REFUSED(&file, "offset 28: parameter 'w': ", "without a tensor");
    file = begun();
    bytes_field(&value, 1, "w", 1);
    bytes_field(&value, 2, tensor.p, tensor.n);
    bytes_field(&value, 2, tensor.p, tensor.n);
    put_value(&file, &value);
    bytes_free(&value);
    REFUSED(&file, "parameter 'w': ", "field 2 of a parameter comes twice");
    file = begun();
    bytes_field(&value, 1, "w", 1);
    bytes_number(&value, 2, 5);
    put_value(&file, &value);
    bytes_free(&value);
    REFUSED(&file, "offset 33: parameter 'w': ", "has the wrong type");
    file = begun();
    bytes_field(&value, 1, "a\0b", 3);
    bytes_field(&value, 2, tensor.p, tensor.n);
    put_value(&file, &value);
    bytes_free(&value);
    REFUSED(&file, "offset 32: ", "not UTF-8 text without NULs");
    bytes_free(&tensor);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const bad[] = {"\x80",         "\xc0\xaf",         "\xe0\x80\xaf",
                                      "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
                                      "w\xc3",        "w\xe2\x82"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bytes file = begun();
        put_tensor(&file, bad[i], two_three, 2, "Int8", filler(6), 6);
        REFUSED(&file, "offset 32: ", "not UTF-8");
    }
    /* The longest name there may be, and one byte more. */
    char *name = malloc((1 << 20) + 2);
    assert_non_null(name);
    memset(name, 'n', (1 << 20) + 1);
    name[(1 << 20) + 1] = '\0';
    struct bytes file = begun();
    put_tensor(&file, name, two_three, 2, "Int8", filler(6), 6);
    REFUSED(&file, "offset 36: ", "a name of 1048577 bytes", "at most 1048576");
    name[1 << 20] = '\0';
    file = begun();
    put_tensor(&file, name, two_three, 2, "Int8", filler(6), 6);
    struct rfs_tables tables = tables_new();
    struct rfs_index *index;
    struct memory memory = {.p = file.p, .n = file.n};
    assert_int_equal(
        rfs_ckpt_walk(RFS_BYTES_SOURCE(memory_read, &memory, file.n, "x"), &tables, &index, NULL),
        0);
    assert_string_equal(rfs_intern_text(tables.names, index->entries[1].name), name);
    assert_int_equal(rfs_ckpt_matches(RFS_BYTES_SOURCE(memory_read, &memory, file.n, NULL), index,
                                      &tables, NULL),
                     1);
    rfs_index_free(index);
    tables_free(&tables);
    bytes_free(&file);
    free(name);
}

static void test_tensor(void **state)
{
    (void)state;
    struct bytes tensor = {0};
    struct bytes file = begun();
    bytes_field(&tensor, 2, "Int8", 4);
    put_parts(&file, "w", &tensor);
    bytes_free(&tensor);
    REFUSED(&file, "parameter 'w': ", "a tensor without its content");
    file = begun();
    bytes_field(&tensor, 3, "x", 1);
    put_parts(&file, "w", &tensor);
    bytes_free(&tensor);
    REFUSED(&file, "parameter 'w': ", "a tensor without its element type");
    file = begun();
    put_tensor(&file, "w", two_three, 2, "Float7", filler(6), 6);
    REFUSED(&file, "offset 40: parameter 'w': ", "unknown element type 'Float7'");
    file = begun();
    put_tensor(&file, "w", two_three, 2, "Flo\nat", filler(6), 6);
    REFUSED(&file, "unknown element type 'Flo\\x0aat'");
    file = begun();
    put_tensor(&file, "w", two_three, 2, "Float32", filler(23), 23);
    REFUSED(&file, "offset 50: parameter 'w': ", "has 23 bytes", "make it 24");
    file = begun();
    put_tensor(&file, "w", two_three, 2, "Float32", filler(25), 25);
    REFUSED(&file, "has 25 bytes", "make it 24");
    file = begun();
    put_tensor(&file, "w", NULL, 0, "Float32", filler(8), 8);
    REFUSED(&file, "has 8 bytes", "make it 4");
    file = begun();
    put_tensor(&file, "w", (const int64_t[]){0}, 1, "Float32", filler(8), 8);
    REFUSED(&file, "has 8 bytes", "make it 4");
    file = begun();
    put_tensor(&file, "w", (const int64_t[]){0}, 1, "str", filler(7), 7);
    REFUSED(&file, "parameter 'w': ", "7 bytes, which is not a multiple of 4");
}

static void test_dims(void **state)
{
    (void)state;
    struct bytes file = begun();
    put_tensor(&file, "w", (const int64_t[]){2, -3}, 2, "Int8", filler(6), 6);
    REFUSED(&file, "parameter 'w': ", "dimension 1 is negative (-3)");
    file = begun();
    put_tensor(&file, "w", (const int64_t[]){INT64_C(1) << 32, INT64_C(1) << 32}, 2, "Int8",
               filler(6), 6);
    REFUSED(&file, "offset 28: parameter 'w': ", "more than 2^63 bytes");
    file = begun();
    put_tensor(&file, "w", (const int64_t[]){INT64_C(1) << 62}, 1, "Float64", filler(6), 6);
    REFUSED(&file, "more than 2^63 bytes");
    file = begun();
    put_tensor(&file, "w", (const int64_t[]){INT64_MAX, 0, INT64_MAX}, 3, "Int8", "", 0);
    REFUSED(&file, "more than 2^63 bytes");
    file = begun();
    int64_t many[17];
    for (unsigned i = 0; i < 17; i++)
        many[i] = 1;
    put_tensor(&file, "w", many, 17, "Int8", filler(1), 1);
    REFUSED(&file, "parameter 'w': ", "more than 16 dimensions");
}

static void test_duplicates(void **state)
{
    (void)state;
    struct bytes file = begun();
    put_tensor(&file, "w", two_three, 2, "Int8", filler(6), 6);
    put_tensor(&file, "good", two_three, 2, "Int8", filler(6), 6);
    REFUSED(&file, "parameter 'good': ", "comes twice", "first at offset 22");
    file = begun();
    put_tensor(&file, "good", two_three, 2, "Int8", filler(6), 6);
    REFUSED(&file, "offset 28: parameter 'good': ", "comes twice", "first at offset 0");
    file = begun();
    put_tensor(&file, "w", two_three, 2, "Int8", filler(4), 4);
    put_tensor(&file, "good2", two_three, 2, "Int8", filler(6), 6);
    REFUSED(&file, "parameter 'w': ", "has 4 bytes", "make it 6");
}

static void test_pieces(void **state)
{
    (void)state;
    struct bytes file = begun();
    put_tensor(&file, "w", two_three, 2, "Int8", filler(4), 4);
    put_tensor(&file, "w", (const int64_t[]){3, 2}, 2, "Int8", filler(2), 2);
    REFUSED(&file, "parameter 'w': ", "not those of the piece at offset 28");
    file = begun();
    put_tensor(&file, "w", two_three, 2, "Int8", filler(4), 4);
    put_tensor(&file, "w", two_three, 2, "UInt8", filler(2), 2);
    REFUSED(&file, "not those of the piece at offset 28");
    file = begun();
    put_tensor(&file, "w", two_three, 2, "Int8", filler(4), 4);
    put_tensor(&file, "w", two_three, 2, "Int8", filler(3), 3);
    REFUSED(&file, "has 7 bytes", "make it 6");
    file = begun();
    put_tensor(&file, "w", two_three, 2, "Int8", filler(4), 4);
    bytes_text(&file, "\x0a\x05\x0a\x01w\x1a"); /* an empty map of the same name */
    bytes_add(&file, "\0", 1);
    REFUSED(&file, "not those of the piece at offset 28");
}

static void test_map(void **state)
{
    (void)state;
    struct bytes value = {0};
    struct bytes map = {0};
    struct bytes file = begun();
    bytes_number(&map, 1, 3);
    bytes_field(&value, 1, "table", 5);
    bytes_field(&value, 3, map.p, map.n);
    put_value(&file, &value);
    REFUSED(&file, "parameter 'table': ", "map tensor holds something");
    bytes_free(&value);
    bytes_free(&map);

    file = begun();
    struct bytes keys = tensor_message(two_three, 1, "int32", filler(8), 8);
    bytes_field(&map, 1, keys.p, keys.n);
    bytes_field(&value, 1, "table", 5);
    bytes_field(&value, 3, map.p, map.n);
    put_value(&file, &value);
    file.n -= 3;
    REFUSED(&file, "parameter 'table': ", "truncated in a tensor");
    bytes_free(&keys);
    bytes_free(&value);
    bytes_free(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_files), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_wire),        cmocka_unit_test(test_value),
        cmocka_unit_test(test_names),       cmocka_unit_test(test_tensor),
        cmocka_unit_test(test_dims),        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_pieces),      cmocka_unit_test(test_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
