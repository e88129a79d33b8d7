/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files: what is read of them, and what is refused, with its message. */
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

/* A file with this header, as it is, and so much data. */
static struct bytes made(const char *header, size_t data)
{
    struct bytes file = {0};
    put_length(&file, strlen(header));
    bytes_text(&file, header);
    bytes_add(&file, filler(data), data);
    return file;
}

struct walked {
    struct rfs_tables tables;
    struct rfs_index *index;
    struct memory memory;
};

static struct walked walk(const struct bytes *file)
{
    struct walked w = {.tables = tables_new(), .memory = {.p = file->p, .n = file->n}};
    struct rfs_error err = {0};
    if (rfs_safetensors_walk(RFS_BYTES_SOURCE(memory_read, &w.memory, file->n, "x"), &w.tables,
                             NULL, &w.index, &err) != 0)
        fail_msg("%s", err.text);
    return w;
}

static void done(struct walked *w, struct bytes *file)
{
    rfs_index_free(w->index);
    tables_free(&w->tables);
    bytes_free(file);
}

static const struct rfs_type *type_of(const struct walked *w, size_t i)
{
    return rfs_intern_bytes(w->tables.types, w->index->entries[i].type, NULL);
}

static void entry_is(const struct walked *w, size_t i, const char *name, enum rfs_dtype dtype,
                     unsigned ndim, uint64_t bytes, uint64_t offset)
{
    const struct rfs_entry *entry = &w->index->entries[i];
    const struct rfs_type *type = type_of(w, i);
    assert_string_equal(rfs_intern_text(w->tables.names, entry->name), name);
    assert_int_equal(type->dtype, dtype);
    assert_int_equal(type->kind, RFS_TENSOR);
    assert_int_equal(type->ndim, ndim);
    assert_true(type->bytes == bytes);
    assert_true(entry->offset == offset);
    assert_int_equal(entry->extent_count, 0);
    assert_ptr_equal(rfs_index_find(w->index, entry->name), entry);
}

/* The bytes that safetensors 0.5.3 wrote for these tensors: tests/interop has more of them. */
static void test_header(void **state)
{
    (void)state;
    const char *header = "{\"__metadata__\":{\"format\":\"ms\"},"
                         "\"q\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                         "\"z\":{\"dtype\":\"F64\",\"shape\":[2,2],\"data_offsets\":[8,40]},"
                         "\"none\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[40,40]},"
                         "\"e\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[40,46]},"
                         "\"m\":{\"dtype\":\"I8\",\"shape\":[2,2],\"data_offsets\":[46,50]}}      ";
    const size_t n = strlen(header);
    struct bytes file = made(header, 50);
    struct walked w = walk(&file);
    assert_int_equal(w.index->n, 5);
    entry_is(&w, 0, "q", RFS_INT64, 0, 8, 8 + n);
    entry_is(&w, 1, "z", RFS_FLOAT64, 2, 32, 8 + n + 8);
    entry_is(&w, 2, "none", RFS_FLOAT32, 2, 0, 8 + n + 40);
    entry_is(&w, 3, "e", RFS_BFLOAT16, 1, 6, 8 + n + 40);
    entry_is(&w, 4, "m", RFS_INT8, 2, 4, 8 + n + 46);
    assert_int_equal(type_of(&w, 2)->dims[1], 3);
    assert_true(w.index->file_bytes == file.n);
    assert_false(w.index->has_crc);
    assert_false(w.index->redundancy_removed);
    assert_int_equal(w.memory.bytes, 8 + n); /* no tensor is read */
    done(&w, &file);
}

static void test_metadata(void **state)
{
    (void)state;
    struct bytes file = made(
        "{\"w\":{\"shape\":[2],\"data_offsets\":[0,2],\"dtype\":\"I8\"},\"v\":{\"dtype\":\"I8\","
        "\"shape\":[1],\"data_offsets\":[2,3],\"more\":[{\"a\":1}]},"
        "\"__metadata__\":{\"w\":\"Int4\",\"crc_num\":\"1387704471\",\"gone\":\"Int4\","
        "\"remove_redundancy\":\"True\",\"v\":\"Int8\"}}",
        3);
    struct walked w = walk(&file);
    assert_int_equal(type_of(&w, 0)->dtype, RFS_INT4);
    assert_int_equal(type_of(&w, 1)->dtype, RFS_INT8);
    assert_true(w.index->has_crc);
    assert_true(w.index->crc == 1387704471);
    assert_true(w.index->redundancy_removed);
    done(&w, &file);
    file = made(
        "{\"__metadata__\":null,\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    w = walk(&file);
    assert_false(w.index->has_crc || w.index->redundancy_removed);
    done(&w, &file);
    file = made("{\"__metadata__\":{\"remove_redundancy\":\"False\",\"crc_num\":\"0x1\"},"
                "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                1);
    w = walk(&file);
    assert_false(w.index->redundancy_removed);
    assert_true(w.index->has_crc);
    assert_true(w.index->crc == UINT64_MAX);
    done(&w, &file);
}

/* MLX, JavaScript and writers that sort names have other orders than that of the data. */
static void test_order(void **state)
{
    (void)state;
    const char *header = "{\"z\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[8,10]},"
                         "\"last\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[14,14]},"
                         "\"a\":[\"F32\",[2],[0,8]],"
                         "\"none\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]},"
                         "\"__metadata__\":{\"m\":\"Int4\"},"
                         "\"m\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[10,14]}}";
    const size_t n = 8 + strlen(header);
    struct bytes file = made(header, 14);
    struct walked w = walk(&file);
    assert_int_equal(w.index->n, 5);
    entry_is(&w, 0, "a", RFS_FLOAT32, 1, 8, n);
    entry_is(&w, 1, "none", RFS_FLOAT32, 1, 0, n + 8);
    entry_is(&w, 2, "z", RFS_INT8, 1, 2, n + 8);
    entry_is(&w, 3, "m", RFS_INT4, 1, 4, n + 10);
    entry_is(&w, 4, "last", RFS_INT8, 1, 0, n + 14);
    done(&w, &file);
}

/* Numbers of 4 and 6 bits are elements of whole bytes along the last dimension, as torch has it. */
static void test_numbers_below_a_byte(void **state)
{
    (void)state;
    struct bytes file =
        made("{\"w\":{\"dtype\":\"F4\",\"shape\":[3,16],\"data_offsets\":[0,24]},"
             "\"x\":{\"dtype\":\"F6_E2M3\",\"shape\":[8],\"data_offsets\":[24,30]},"
             "\"y\":{\"dtype\":\"F6_E3M2\",\"shape\":[2,4],\"data_offsets\":[30,36]},"
             "\"e\":{\"dtype\":\"F4\",\"shape\":[5,0],\"data_offsets\":[36,36]}}",
             36);
    struct walked w = walk(&file);
    const uint64_t n = file.n - 36;
    entry_is(&w, 0, "w", RFS_FLOAT4_E2M1_X2, 2, 24, n);
    assert_int_equal(type_of(&w, 0)->dims[0], 3);
    assert_int_equal(type_of(&w, 0)->dims[1], 8);
    entry_is(&w, 1, "x", RFS_FLOAT6_E2M3_X4, 1, 6, n + 24);
    assert_int_equal(type_of(&w, 1)->dims[0], 2);
    entry_is(&w, 2, "y", RFS_FLOAT6_E3M2_X4, 2, 6, n + 30);
    assert_int_equal(type_of(&w, 2)->dims[1], 1);
    entry_is(&w, 3, "e", RFS_FLOAT4_E2M1_X2, 2, 0, n + 36);
    done(&w, &file);
}

static void test_names(void **state)
{
    (void)state;
    struct bytes file = made("{\"\\u00e9\\n\\ud83d\\ude00\":{\"dtype\":\"U8\",\"shape\":[1],"
                             "\"data_offsets\":[0,1]},\"\":{\"dtype\":\"U8\",\"shape\":[1],"
                             "\"data_offsets\":[1,2]}}",
                             2);
    struct walked w = walk(&file);
    entry_is(&w, 0, "\xc3\xa9\n\xf0\x9f\x98\x80", RFS_UINT8, 1, 1, file.n - 2);
    entry_is(&w, 1, "", RFS_UINT8, 1, 1, file.n - 1);
    done(&w, &file);
}

static void test_like(void **state)
{
    (void)state;
    const char *header = "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    struct bytes file = made(header, 1);
    struct bytes wider = made("{\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2);
    struct walked w = walk(&file);
    struct rfs_index *out;
    struct memory memory = {.p = file.p, .n = file.n};
    assert_int_equal(rfs_safetensors_walk(RFS_BYTES_SOURCE(memory_read, &memory, file.n, "x"),
                                          &w.tables, w.index, &out, NULL),
                     1);
    assert_null(out);
    struct memory other = {.p = wider.p, .n = wider.n};
    assert_int_equal(rfs_safetensors_walk(RFS_BYTES_SOURCE(memory_read, &other, wider.n, "x"),
                                          &w.tables, w.index, &out, NULL),
                     0);
    assert_int_equal(out->n, 1);
    rfs_index_free(out);
    bytes_add(&file, "x", 1); /* the same header, but not the same file */
    memory = (struct memory){.p = file.p, .n = file.n};
    assert_int_equal(rfs_safetensors_walk(RFS_BYTES_SOURCE(memory_read, &memory, file.n, "x"),
                                          &w.tables, w.index, &out, NULL),
                     -EINVAL);
    memory.fail = -EIO;
    assert_int_equal(rfs_safetensors_walk(RFS_BYTES_SOURCE(memory_read, &memory, file.n, "x"),
                                          &w.tables, NULL, &out, NULL),
                     -EIO);
    bytes_free(&wider);
    done(&w, &file);
}

/* Many tensors: the header is read once, and everything is found. */
static void test_many(void **state)
{
    (void)state;
    const unsigned n = 30000;
    struct bytes header = {0};
    struct bytes file = {0};
    char text[160];
    for (unsigned i = 0; i < n; i++) {
        snprintf(text, sizeof text,
                 "%s\"layer.%u.w\":{\"dtype\":\"F16\",\"shape\":[%u,1],\"data_offsets\":[%u,%u]}",
                 i == 0 ? "{" : ",", i, 2u, 4 * i, 4 * i + 4);
        bytes_text(&header, text);
    }
    bytes_text(&header, "}");
    put_length(&file, header.n);
    bytes_add(&file, header.p, header.n);
    bytes_add(&file, filler(4 * n), 4 * n);
    struct walked w = walk(&file);
    assert_int_equal(w.index->n, n);
    assert_int_equal(w.memory.reads, 2);
    entry_is(&w, n - 1, "layer.29999.w", RFS_FLOAT16, 2, 4, file.n - 4);
    bytes_free(&header);
    done(&w, &file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header), cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_order),  cmocka_unit_test(test_numbers_below_a_byte),
        cmocka_unit_test(test_names),  cmocka_unit_test(test_like),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
