/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that MindSpore wrote, against what google's protobuf finds in them
 * (tests/fixtures/make_ckpt.py).
 */
#include "tests/unit/store/writer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void fixture_path(char *path, size_t cap, const char *name)
{
    const char *top = getenv("top_srcdir");
    snprintf(path, cap, "%s/tests/fixtures/ckpt/%s", top ? top : ".", name);
}

static struct bytes load(const char *name)
{
    char path[4096];
    fixture_path(path, sizeof path, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct bytes data = {0};
    unsigned char buf[4096];
    for (size_t n; (n = fread(buf, 1, sizeof buf, file)) > 0;)
        bytes_add(&data, buf, n);
    fclose(file);
    return data;
}

static int walk(const struct bytes *data, const char *name, struct rfs_tables *tables,
                struct rfs_index **index, struct rfs_error *err)
{
    struct memory memory = {.p = data->p, .n = data->n};
    return rfs_ckpt_walk(RFS_BYTES_SOURCE(memory_read, &memory, data->n, name), tables, index, err);
}

/* "2,3", or "-" for none. */
static void shape_text(const struct rfs_type *type, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "%s", type->ndim == 0 ? "-" : "");
    for (unsigned i = 0; i < type->ndim; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%llu", i ? "," : "",
                              (unsigned long long)type->dims[i]);
}

/* The content in hex, over all extents. Owned by the caller. */
static char *content_hex(const struct bytes *data, const struct rfs_index *index,
                         const struct rfs_entry *entry, const struct rfs_type *type)
{
    char *hex = calloc(1, type->bytes * 2 + 1);
    assert_non_null(hex);
    const struct rfs_extent one = {entry->offset, type->bytes};
    const struct rfs_extent *extents = entry->extent_count ? index->extents + entry->extent : &one;
    size_t n = 0;
    for (size_t i = 0; i < (entry->extent_count ? entry->extent_count : 1); i++) {
        assert_true(extents[i].offset + extents[i].bytes <= data->n);
        for (uint64_t k = 0; k < extents[i].bytes; k++, n += 2) {
            assert_true(n < type->bytes * 2);
            snprintf(hex + n, 3, "%02x", data->p[extents[i].offset + k]);
        }
    }
    assert_int_equal(n, type->bytes * 2);
    assert_int_equal(entry->offset, extents[0].offset);
    return hex;
}

static void check_row(const struct bytes *data, const struct rfs_index *index,
                      struct rfs_tables *tables, size_t row, char **field)
{
    static const char *const kinds[] = {"tensor", "str", "map"};
    assert_true(row < index->n);
    const struct rfs_entry *entry = &index->entries[row];
    const struct rfs_type *type = rfs_intern_bytes(tables->types, entry->type, NULL);
    assert_string_equal(rfs_intern_text(tables->names, entry->name), field[1]);
    assert_string_equal(kinds[type->kind], field[2]);
    if (type->kind != RFS_MAP)
        assert_string_equal(rfs_dtype_name((enum rfs_dtype)type->dtype), field[3]);
    char shape[128];
    shape_text(type, shape, sizeof shape);
    assert_string_equal(shape, field[4]);
    char *hex = content_hex(data, index, entry, type);
    assert_string_equal(hex, field[5]);
    free(hex);
    assert_ptr_equal(rfs_index_find(index, entry->name), entry);
}

static void test_expected(void **state)
{
    (void)state;
    char path[4096];
    fixture_path(path, sizeof path, "expected.tsv");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    struct rfs_tables tables = tables_new();
    struct bytes data = {0};
    struct rfs_index *index = NULL;
    char now[64] = "";
    char *line = NULL;
    size_t cap = 0;
    size_t row = 0;
    size_t files = 0;
    while (getline(&line, &cap, file) > 0) {
        char *field[6];
        char *rest = line;
        line[strcspn(line, "\n")] = '\0';
        for (unsigned i = 0; i < 6; i++)
            assert_non_null(field[i] = strsep(&rest, "\t"));
        if (strcmp(now, field[0]) != 0) {
            if (index)
                assert_int_equal(row, index->n);
            rfs_index_free(index);
            bytes_free(&data);
            snprintf(now, sizeof now, "%s", field[0]);
            data = load(now);
            struct rfs_error err = {0};
            const int rc = walk(&data, now, &tables, &index, &err);
            if (rc < 0)
                fail_msg("%s", err.text);
            assert_int_equal(index->has_crc, strcmp(now, "crc.ckpt") == 0);
            assert_int_equal(index->file_bytes, data.n);
            row = 0;
            files++;
        }
        check_row(&data, index, &tables, row++, field);
    }
    assert_non_null(index);
    assert_int_equal(row, index->n);
    assert_int_equal(files, 9);
    rfs_index_free(index);
    bytes_free(&data);
    free(line);
    fclose(file);
    tables_free(&tables);
}

/* MindSpore's own way of writing is one that predictions understand. */
static void test_match_themselves(void **state)
{
    (void)state;
    static const char *const names[] = {
        "dtypes.ckpt",    "scalars.ckpt",     "strings.ckpt",         "crc.ckpt", "chunks.ckpt",
        "zero_size.ckpt", "array_split.ckpt", "zero_size_async.ckpt", "map.ckpt"};
    const size_t n = sizeof names / sizeof *names;
    struct rfs_tables tables = tables_new();
    struct bytes data[9];
    struct rfs_index *index[9];
    for (size_t i = 0; i < n; i++) {
        data[i] = load(names[i]);
        assert_int_equal(walk(&data[i], names[i], &tables, &index[i], NULL), 0);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            struct memory memory = {.p = data[k].p, .n = data[k].n};
            const int rc = rfs_ckpt_matches(RFS_BYTES_SOURCE(memory_read, &memory, data[k].n, NULL),
                                            index[i], &tables, NULL);
            assert_int_equal(rc, i == k && i != 8); /* maps are left to the walk */
        }
    }
    for (size_t i = 0; i < n; i++) {
        rfs_index_free(index[i]);
        bytes_free(&data[i]);
    }
    tables_free(&tables);
}

static void test_encrypted(void **state)
{
    (void)state;
    static const char *const names[] = {"encrypted_gcm.ckpt", "encrypted_cbc.ckpt"};
    static const char *const modes[] = {"AES-GCM", "AES-CBC"};
    struct rfs_tables tables = tables_new();
    for (unsigned i = 0; i < 2; i++) {
        struct bytes data = load(names[i]);
        struct rfs_index *index;
        struct rfs_error err = {0};
        assert_int_equal(walk(&data, names[i], &tables, &index, &err), -EINVAL);
        assert_null(index);
        assert_int_equal(err.code, -EINVAL);
        assert_non_null(strstr(err.text, names[i]));
        assert_non_null(strstr(err.text, "encrypted"));
        assert_non_null(strstr(err.text, modes[i]));
        assert_non_null(strstr(err.text, "key_file="));
        bytes_free(&data);
    }
    tables_free(&tables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expected),
        cmocka_unit_test(test_match_themselves),
        cmocka_unit_test(test_encrypted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
