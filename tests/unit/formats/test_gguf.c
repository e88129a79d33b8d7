/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF files: those that are put together here, byte by byte as docs/gguf.md of ggml has them, and
 * those that gguf of llama.cpp has written (tests/fixtures/make_gguf.py).
 */
#include "base/options.h"
#include "formats/gguf/gguf.h"

#include "base/cleanup.h"
#include "catalog/catalog.h"
#include "tests/support/tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))

/* ---- files ----------------------------------------------------------------------------------- */

static void put(struct bytes *out, uint64_t number, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        bytes_add(out, &(unsigned char){(unsigned char)(number >> 8 * i)}, 1);
}

static void put_text(struct bytes *out, const char *text)
{
    put(out, strlen(text), 8);
    bytes_add(out, text, strlen(text));
}

static void put_begin(struct bytes *out, uint64_t version, uint64_t tensors, uint64_t values)
{
    bytes_add(out, "GGUF", 4);
    put(out, version, 4);
    put(out, tensors, 8);
    put(out, values, 8);
}

static void put_key(struct bytes *out, const char *key, unsigned type)
{
    put_text(out, key);
    put(out, type, 4);
}

/* Puts the header of a tensor with N dims, in the order of files. */
static void put_tensor(struct bytes *out, const char *name, const uint64_t *dims, unsigned n,
                       unsigned type, uint64_t offset)
{
    put_text(out, name);
    put(out, n, 4);
    for (unsigned i = 0; i < n; i++)
        put(out, dims[i], 8);
    put(out, type, 4);
    put(out, offset, 8);
}

static void put_zeros(struct bytes *out, size_t n)
{
    while (n-- > 0)
        put(out, 0, 1);
}

static void pad(struct bytes *out, size_t alignment)
{
    while (out->n % alignment != 0)
        put(out, 0, 1);
}

struct walked {
    struct bytes file;
    const char *name; /* NULL: m.gguf */
    struct rfs_tables tables;
    struct rfs_index *index;
    size_t values;
    struct rfs_error err;
    int rc;
};

static int read_file(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct bytes *file = ctx;

    assert_true(offset <= file->n && n <= file->n - offset);
    memcpy(buf, file->data + offset, n);
    return 0;
}

static bool count(void *ctx, const struct rfs_format_value *value)
{
    assert_true(value->type && strlen(value->name) <= 1024);
    assert_true(!value->text || strlen(value->text) <= 4096);
    ++*(size_t *)ctx;
    return true;
}

/* Lists and copies the values: without a failure where the file is read. */
static void take_values(const struct walked *w, struct rfs_bytes *copy, uint64_t *copied)
{
    const struct bytes *file = &w->file;
    struct rfs_error err[2] = {{0}, {0}};
    size_t n = 0;
    const int rc =
        rfs_gguf_values(RFS_BYTES_SOURCE(read_file, (void *)(uintptr_t)file, file->n, "m.gguf"),
                        count, &n, &err[0]);

    *copied = 0;
    assert_int_equal(rc, err[0].code);
    assert_int_equal(rfs_gguf_copy_values(
                         RFS_BYTES_SOURCE(read_file, (void *)(uintptr_t)file, file->n, "m.gguf"),
                         false, copy, copied, &err[1]),
                     rc);
    assert_true(w->rc != 0 || (rc == 0 && n == w->values));
}

static void walk(struct walked *w)
{
    struct rfs_bytes copy = {0};
    uint64_t copied;

    w->tables = (struct rfs_tables){rfs_intern_new(), rfs_intern_new()};
    w->rc = rfs_gguf_walk(
        RFS_BYTES_SOURCE(read_file, &w->file, w->file.n, w->name ? w->name : "m.gguf"), &w->tables,
        &w->index, &w->values, &w->err);
    assert_true((w->rc == 0) == (w->index != NULL) && w->rc == w->err.code);
    take_values(w, &copy, &copied);
    free(copy.data);
}

static void end(struct walked *w)
{
    rfs_index_free(w->index);
    rfs_intern_free(w->tables.names);
    rfs_intern_free(w->tables.types);
    bytes_free(&w->file);
}

static const struct rfs_type *entry_is(const struct walked *w, size_t i, const char *name,
                                       uint64_t offset)
{
    const struct rfs_entry *entry = &w->index->entries[i];

    assert_string_equal(rfs_intern_text(w->tables.names, entry->name), name);
    assert_int_equal(entry->offset, offset);
    return rfs_intern_bytes(w->tables.types, entry->type, NULL);
}

/* ---- files that are read --------------------------------------------------------------------- */

static void test_types(void **state)
{
    static const struct {
        unsigned type;
        enum rfs_dtype dtype;
        uint64_t numbers, bytes; /* in a block */
    } types[] = {{0, RFS_FLOAT32, 1, 4},   {1, RFS_FLOAT16, 1, 2},   {2, RFS_Q4_0, 32, 18},
                 {8, RFS_Q8_0, 32, 34},    {12, RFS_Q4_K, 256, 144}, {13, RFS_Q5_K, 256, 176},
                 {14, RFS_Q6_K, 256, 210}, {24, RFS_INT8, 1, 1},     {25, RFS_INT16, 1, 2},
                 {26, RFS_INT32, 1, 4},    {27, RFS_INT64, 1, 8},    {28, RFS_FLOAT64, 1, 8},
                 {30, RFS_BFLOAT16, 1, 2}};
    struct walked w = {.rc = 0};
    char names[ARRAY_SIZE(types)][16];
    uint64_t at = 0;

    (void)state;
    put_begin(&w.file, 3, ARRAY_SIZE(types), 0);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        snprintf(names[i], sizeof names[i], "t.%zu", i);
        put_tensor(&w.file, names[i], (uint64_t[]){3 * types[i].numbers, 5, 2}, 3, types[i].type,
                   at);
        at += (30 * types[i].bytes + 31) / 32 * 32;
    }
    pad(&w.file, 32);
    const uint64_t data = w.file.n;
    put_zeros(&w.file, at);
    walk(&w);
    assert_int_equal(w.rc, 0);
    assert_int_equal(w.index->n, ARRAY_SIZE(types));
    at = data;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        const struct rfs_type *type = entry_is(&w, i, names[i], at);
        const uint64_t dims[] = {2, 5, 3};
        assert_int_equal(type->ndim, 3);
        assert_memory_equal(type->dims, dims, sizeof dims);
        assert_int_equal(type->dtype, types[i].dtype);
        assert_int_equal(type->bytes, 30 * types[i].bytes);
        assert_int_equal(rfs_dtype_packed(types[i].dtype), types[i].numbers);
        assert_int_equal(rfs_gguf_type(types[i].dtype), types[i].type);
        at += (type->bytes + 31) / 32 * 32;
    }
    end(&w);
}

/* Puts values of all types, also arrays in arrays and a text longer than what is read at once. */
static uint64_t put_values(struct bytes *out)
{
    static const unsigned bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    char *text = malloc(70001);
    uint64_t n = 0;

    memset(text, 'x', 70000);
    text[70000] = '\0';
    for (unsigned type = 0; type < ARRAY_SIZE(bytes); type++)
        if (bytes[type] > 0) {
            put_key(out, "general.something", type); /* as long as general.alignment */
            put_zeros(out, bytes[type]);
            put_key(out, "array", RFS_GGUF_ARRAY);
            put(out, type, 4);
            put(out, 5000, 8);
            put_zeros(out, (size_t)5000 * bytes[type]);
            n += 2;
        }
    put_key(out, "tokenizer.chat_template", RFS_GGUF_STRING);
    put_text(out, text);
    put_key(out, "tokens", RFS_GGUF_ARRAY);
    put(out, RFS_GGUF_STRING, 4);
    put(out, 3000, 8);
    for (unsigned i = 0; i < 3000; i++)
        put_text(out, text + 70000 - i % 9);
    put_key(out, "nested", RFS_GGUF_ARRAY);
    put(out, RFS_GGUF_ARRAY, 4);
    put(out, 2, 8);
    for (unsigned i = 0; i < 2; i++) {
        put(out, i ? RFS_GGUF_STRING : RFS_GGUF_UINT16, 4);
        put(out, 1, 8);
        put(out, 0, i ? 8 : 2);
    }
    put_key(out, text + 10000, RFS_GGUF_UINT8); /* a key of 60,000 bytes */
    put(out, 1, 1);
    free(text);
    return n + 4;
}

static void test_values(void **state)
{
    static const struct {
        uint64_t version, alignment;
    } rows[] = {{3, 0}, {2, 0}, {3, 1}, {3, 8}, {3, 64}, {3, 4096}};
    struct bytes values = {0};
    const uint64_t n = put_values(&values);

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const uint64_t alignment = rows[i].alignment ? rows[i].alignment : 32;
        struct walked w = {.rc = 0};
        put_begin(&w.file, rows[i].version, 2, n + (rows[i].alignment > 0));
        bytes_add(&w.file, values.data, values.n);
        if (rows[i].alignment) {
            put_key(&w.file, "general.alignment", RFS_GGUF_UINT32);
            put(&w.file, alignment, 4);
        }
        const uint64_t second = (5 + alignment - 1) / alignment * alignment;
        put_tensor(&w.file, "a", (uint64_t[]){5}, 1, 24, 0);
        put_tensor(&w.file, "b", NULL, 0, 0, second);
        pad(&w.file, alignment);
        const uint64_t data = w.file.n;
        put_zeros(&w.file, second + 4); /* without padding at the end */
        walk(&w);
        assert_int_equal(w.rc, 0);
        assert_int_equal(w.values, n + (rows[i].alignment > 0));
        assert_int_equal(entry_is(&w, 0, "a", data)->bytes, 5);
        assert_int_equal(entry_is(&w, 1, "b", data + second)->ndim, 0);
        struct rfs_bytes copy = {0};
        uint64_t copied;
        take_values(&w, &copy, &copied);
        assert_int_equal(copied, n); /* the alignment is of the file */
        assert_int_equal(copy.n, values.n);
        assert_memory_equal(copy.data, values.data, copy.n);
        free(copy.data);
        end(&w);
    }
    bytes_free(&values);
}

struct listed {
    const char *text; /* NULL: a list */
    bool is_text;
    uint64_t n;
};

static bool compare(void *ctx, const struct rfs_format_value *value)
{
    const struct listed **want = ctx;

    assert_string_equal(value->name, "v");
    assert_true((value->text != NULL) == ((*want)->text != NULL));
    if (value->text)
        assert_string_equal(value->text, (*want)->text);
    assert_int_equal(value->is_text, (*want)->is_text);
    assert_int_equal(value->n, (*want)->n);
    ++*want;
    return true;
}

static void test_listed(void **state)
{
    static const struct {
        unsigned type, bytes;
        uint64_t bits;
        struct listed want;
    } rows[] = {{RFS_GGUF_UINT8, 1, 255, {"255", false, 0}},
                {RFS_GGUF_INT8, 1, 0xf9, {"-7", false, 0}},
                {RFS_GGUF_INT16, 2, 0x8000, {"-32768", false, 0}},
                {RFS_GGUF_INT32, 4, 7, {"7", false, 0}},
                {RFS_GGUF_FLOAT32, 4, 0x3f000000, {"0.5", false, 0}},
                {RFS_GGUF_FLOAT32, 4, 0x7f800000, {"inf", true, 0}},
                {RFS_GGUF_BOOL, 1, 1, {"true", false, 0}},
                {RFS_GGUF_UINT64, 8, UINT64_MAX, {"18446744073709551615", false, 0}},
                {RFS_GGUF_INT64, 8, UINT64_MAX, {"-1", false, 0}},
                {RFS_GGUF_FLOAT64, 8, UINT64_C(0xc000000000000000), {"-2", false, 0}}};
    struct listed wants[ARRAY_SIZE(rows) + 2];
    const struct listed *want = wants;
    struct bytes file = {0};
    struct rfs_error err = {0};

    (void)state;
    put_begin(&file, 3, 0, ARRAY_SIZE(rows) + 2);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        put_key(&file, "v", rows[i].type);
        put(&file, rows[i].bits, rows[i].bytes);
        wants[i] = rows[i].want;
    }
    put_key(&file, "v", RFS_GGUF_STRING);
    put_text(&file, "two words");
    wants[ARRAY_SIZE(rows)] = (struct listed){"two words", true, 9};
    put_key(&file, "v", RFS_GGUF_ARRAY);
    put(&file, RFS_GGUF_UINT8, 4);
    put(&file, 3, 8);
    put(&file, 0, 3);
    wants[ARRAY_SIZE(rows) + 1] = (struct listed){NULL, false, 3};
    assert_int_equal(
        rfs_gguf_values(RFS_BYTES_SOURCE(read_file, &file, file.n, "m.gguf"), compare, &want, &err),
        0);
    assert_ptr_equal(want, wants + ARRAY_SIZE(wants));
    bytes_free(&file);
}

/* Walks a file without tensors that says the numbers of a split file. */
static int walk_part(unsigned no, unsigned count, const char *name)
{
    struct walked w = {.name = name};

    put_begin(&w.file, 3, 0, 2);
    put_key(&w.file, "split.no", RFS_GGUF_UINT16);
    put(&w.file, no, 2);
    put_key(&w.file, "split.count", RFS_GGUF_UINT16);
    put(&w.file, count, 2);
    walk(&w);
    if (w.index)
        assert_int_equal(w.index->n, 0);
    if (w.rc == -EINVAL)
        assert_non_null(strstr(w.err.text, "its name says otherwise"));
    end(&w);
    return w.rc;
}

/* A part of a split file may have no tensors, and has its numbers in the name. */
static void test_parts(void **state)
{
    (void)state;
    assert_int_equal(walk_part(0, 0, NULL), -ENODATA);
    assert_int_equal(walk_part(0, 1, NULL), -ENODATA);
    assert_int_equal(walk_part(0, 2, "a/m-00001-of-00002.gguf"), 0);
    assert_int_equal(walk_part(1, 2, "a/m-00002-of-00002.gguf"), 0);
    assert_int_equal(walk_part(65534, 65535, "m-65535-of-65535.gguf"), 0);
    assert_int_equal(walk_part(0, 2, NULL), -EINVAL);
    assert_int_equal(walk_part(0, 2, "m-00002-of-00002.gguf"), -EINVAL);
    assert_int_equal(walk_part(1, 2, "m-00001-of-00002.gguf"), -EINVAL);
    assert_int_equal(walk_part(1, 3, "m-00002-of-00002.gguf"), -EINVAL);
}

/* ---- files that are refused ------------------------------------------------------------------ */

static void bad_magic(struct bytes *out)
{
    bytes_add(out, "GGML", 4);
    put_zeros(out, 60);
}
static void bad_lfs(struct bytes *out)
{
    bytes_add(out, "version https://git-lfs.github.com/spec/v1\n", 43);
}
static void bad_empty(struct bytes *out)
{
    (void)out;
}
static void bad_version(struct bytes *out)
{
    put_begin(out, 1, 0, 0);
}
static void bad_big_endian(struct bytes *out)
{
    put_begin(out, 3U << 24, 0, 0);
}
static void bad_counts(struct bytes *out)
{
    put_begin(out, 3, UINT64_MAX, 0);
}
static void bad_value_count(struct bytes *out)
{
    put_begin(out, 3, 0, UINT64_MAX / 2);
    put_zeros(out, 100);
}
static void bad_value_type(struct bytes *out)
{
    put_begin(out, 3, 0, 1);
    put_key(out, "k", RFS_GGUF_VALUES);
    put_zeros(out, 100);
}
static void bad_element_type(struct bytes *out)
{
    put_begin(out, 3, 0, 1);
    put_key(out, "k", RFS_GGUF_ARRAY);
    put(out, 99, 4);
    put_zeros(out, 100);
}
static void bad_array(struct bytes *out)
{
    put_begin(out, 3, 0, 1);
    put_key(out, "k", RFS_GGUF_ARRAY);
    put(out, RFS_GGUF_UINT64, 4);
    put(out, UINT64_MAX / 8 + 2, 8);
    put_zeros(out, 100);
}
static void bad_texts(struct bytes *out)
{
    put_begin(out, 3, 0, 1);
    put_key(out, "k", RFS_GGUF_ARRAY);
    put(out, RFS_GGUF_STRING, 4);
    put(out, UINT64_MAX, 8);
    put_zeros(out, 100);
}
static void bad_text(struct bytes *out)
{
    put_begin(out, 3, 0, 1);
    put_key(out, "k", RFS_GGUF_STRING);
    put(out, UINT64_MAX, 8);
}
static void bad_depth(struct bytes *out)
{
    put_begin(out, 3, 0, 1);
    put_key(out, "k", RFS_GGUF_ARRAY);
    for (unsigned i = 0; i < 10000; i++) {
        put(out, RFS_GGUF_ARRAY, 4);
        put(out, 1, 8);
    }
}
static void bad_key(struct bytes *out)
{
    put_begin(out, 3, 0, 1);
    put(out, 65536, 8);
    put_zeros(out, 70000);
}
static void put_alignment(struct bytes *out, unsigned type, uint64_t alignment, unsigned times)
{
    put_begin(out, 3, 0, times);
    for (unsigned i = 0; i < times; i++) {
        put_key(out, "general.alignment", type);
        put(out, alignment, 4);
    }
    put_zeros(out, 100);
}
static void bad_alignment(struct bytes *out)
{
    put_alignment(out, RFS_GGUF_UINT32, 48, 1);
}
static void no_alignment(struct bytes *out)
{
    put_alignment(out, RFS_GGUF_UINT32, 0, 1);
}
static void bad_alignment_type(struct bytes *out)
{
    put_alignment(out, RFS_GGUF_INT32, 32, 1);
}
static void two_alignments(struct bytes *out)
{
    put_alignment(out, RFS_GGUF_UINT32, 32, 2);
}
static void one_tensor(struct bytes *out, const char *name, uint64_t row, unsigned ndim,
                       unsigned type, uint64_t offset, size_t data)
{
    const uint64_t dims[32] = {row, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

    put_begin(out, 3, 1, 0);
    put_tensor(out, name, dims, ndim, type, offset);
    pad(out, 32);
    put_zeros(out, data);
}
static void bad_name(struct bytes *out)
{
    one_tensor(out, "\xff", 8, 1, 0, 0, 32);
}
static void long_name(struct bytes *out)
{
    put_begin(out, 3, 1, 0);
    put(out, 4097, 8);
    put_zeros(out, 5000);
}
static void bad_dims(struct bytes *out)
{
    one_tensor(out, "w", 8, 17, 0, 0, 32);
}
static void huge_dims(struct bytes *out)
{
    one_tensor(out, "w", UINT64_MAX, 1, 28, 0, 32);
}
static void ragged_row(struct bytes *out)
{
    one_tensor(out, "w", 300, 1, 12, 0, 288);
}
static void scalar_block(struct bytes *out)
{
    one_tensor(out, "w", 0, 0, 8, 0, 64);
}
static void gone_type(struct bytes *out)
{
    one_tensor(out, "w", 32, 1, 4, 0, 64);
}
static void unread_type(struct bytes *out)
{
    one_tensor(out, "w", 32, 1, 39, 0, 64);
}
static void high_type(struct bytes *out)
{
    one_tensor(out, "w", 32, 1, UINT32_MAX, 0, 64);
}
static void bad_offset(struct bytes *out)
{
    one_tensor(out, "w", 8, 1, 0, 32, 64);
}
static void truncated(struct bytes *out)
{
    one_tensor(out, "w", 8, 1, 0, 0, 31);
}
static void more_data(struct bytes *out)
{
    one_tensor(out, "w", 8, 1, 0, 0, 33);
}
static void two_of_a_name(struct bytes *out)
{
    put_begin(out, 3, 2, 0);
    put_tensor(out, "w", (uint64_t[]){8}, 1, 0, 0);
    put_tensor(out, "w", (uint64_t[]){8}, 1, 0, 32);
    pad(out, 32);
    put_zeros(out, 64);
}

static void test_refused(void **state)
{
    static const struct {
        void (*make)(struct bytes *out);
        int code;
        const char *said;
    } rows[] = {
        {bad_magic, -EINVAL, "does not begin with GGUF"},
        {bad_lfs, -EINVAL, "Git LFS pointer"},
        {bad_empty, -EINVAL, "the file is empty"},
        {bad_version, -ENOTSUP, "of version 1"},
        {bad_big_endian, -ENOTSUP, "big-endian"},
        {bad_counts, -EINVAL, "18446744073709551615 tensors"},
        {bad_value_count, -EINVAL, "too short"},
        {bad_value_type, -EINVAL, "type 13"},
        {bad_element_type, -EINVAL, "type 99"},
        {bad_array, -EINVAL, "truncated"},
        {bad_texts, -EINVAL, "truncated"},
        {bad_text, -EINVAL, "truncated"},
        {bad_depth, -EINVAL, "more than 8 arrays are in each other"},
        {bad_key, -EINVAL, "the key of a value has 65536 bytes"},
        {bad_alignment, -EINVAL, "general.alignment is 48"},
        {no_alignment, -EINVAL, "general.alignment is 0"},
        {bad_alignment_type, -EINVAL, "general.alignment has type 5"},
        {two_alignments, -EINVAL, "general.alignment comes twice"},
        {bad_name, -EINVAL, "not UTF-8"},
        {long_name, -EINVAL, "has 4097 bytes"},
        {bad_dims, -EINVAL, "17 dimensions"},
        {huge_dims, -EINVAL, "more than 2^63 bytes"},
        {ragged_row, -EINVAL, "in blocks of 256 numbers, and its rows have 300"},
        {scalar_block, -EINVAL, "in blocks of 32 numbers, and its rows have 1"},
        {gone_type, -EINVAL, "type 4"},
        {unread_type, -ENOTSUP, "parameter 'w': is of type MXFP4"},
        {high_type, -EINVAL, "type 4294967295"},
        {bad_offset, -EINVAL, "begins at byte 32"},
        {truncated, -EINVAL, "end at byte 32 of the data, and it has 31"},
        {more_data, -EINVAL, "1 bytes follow"},
        {two_of_a_name, -EINVAL, "parameter 'w': the tensor comes twice"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct walked w = {.rc = 0};
        rows[i].make(&w.file);
        walk(&w);
        assert_int_equal(w.rc, rows[i].code);
        if (!strstr(w.err.text, rows[i].said))
            fail_msg("'%s' is not in '%s'", rows[i].said, w.err.text);
        end(&w);
    }
}

/* Each beginning of a file is refused: none is read behind its end. */
static void test_beginnings(void **state)
{
    struct walked whole = {.rc = 0};
    const uint64_t n = 1;

    (void)state;
    put_begin(&whole.file, 3, 1, n);
    put_key(&whole.file, "tokens", RFS_GGUF_ARRAY);
    put(&whole.file, RFS_GGUF_STRING, 4);
    put(&whole.file, 2, 8);
    put_text(&whole.file, "a");
    put_text(&whole.file, "bc");
    put_tensor(&whole.file, "w", (uint64_t[]){32, 2}, 2, 8, 0);
    pad(&whole.file, 32);
    put_zeros(&whole.file, 68);
    for (size_t size = 0; size <= whole.file.n; size++) {
        struct walked w = {.rc = 0};
        bytes_add(&w.file, whole.file.data, size);
        walk(&w);
        assert_int_equal(w.rc, size < whole.file.n ? -EINVAL : 0);
        end(&w);
    }
    bytes_free(&whole.file);
}

/* ---- files that are written ------------------------------------------------------------------ */

static struct rfs_type type_of(enum rfs_dtype dtype, unsigned ndim, const uint64_t *dims)
{
    struct rfs_type type;

    memset(&type, 0, sizeof type);
    type.ndim = (uint8_t)ndim;
    type.dtype = (uint8_t)dtype;
    for (unsigned i = 0; i < ndim; i++)
        type.dims[i] = dims[i];
    assert_true(rfs_type_bytes(&type, &type.bytes));
    return type;
}

static struct rfs_image_tensor tensor_of(const char *name, const struct rfs_type *type, uint32_t i)
{
    return (struct rfs_image_tensor){
        .name = name, .name_bytes = strlen(name), .source_name = name, .type = type, .target = i};
}

/* Puts an image together; tensors are bytes 0xaa. */
static void write_image(const struct rfs_image *image, struct bytes *out)
{
    for (size_t i = 0; i < image->n; i++) {
        const struct rfs_region *region = &image->regions[i];
        const uint64_t n = rfs_image_end(image, i) - region->start;
        assert_int_equal(region->start, out->n);
        if (region->target == RFS_LITERAL)
            bytes_add(out, image->literals + region->at, n);
        for (uint64_t k = 0; region->target != RFS_LITERAL && k < n; k++)
            put(out, 0xaa, 1);
    }
}

static void test_written(void **state)
{
    const struct rfs_type types[] = {
        type_of(RFS_FLOAT16, 2, (uint64_t[]){3, 5}), type_of(RFS_Q4_K, 2, (uint64_t[]){2, 3}),
        type_of(RFS_FLOAT32, 0, NULL), type_of(RFS_INT8, 1, (uint64_t[]){0})};
    const struct rfs_image_tensor tensors[] = {
        tensor_of("a", &types[0], 0), tensor_of("b", &types[1], 1), tensor_of("c", &types[2], 2),
        tensor_of("d", &types[3], 3)};
    struct rfs_image *image = NULL;
    struct walked w = {.rc = 0};
    struct bytes want = {0};

    (void)state;
    put_begin(&want, 3, 4, 0);
    put_tensor(&want, "a", (uint64_t[]){5, 3}, 2, 1, 0);
    put_tensor(&want, "b", (uint64_t[]){768, 2}, 2, 12, 32);
    put_tensor(&want, "c", NULL, 0, 0, 896);
    put_tensor(&want, "d", (uint64_t[]){0}, 1, 24, 928);
    pad(&want, 32);
    assert_int_equal(
        rfs_gguf_encode(&(struct rfs_gguf_content){.tensors = tensors, .n = 4, .path = "src"},
                        &image, &w.err),
        0);
    write_image(image, &w.file);
    assert_int_equal(w.file.n, want.n + 928);
    assert_memory_equal(w.file.data, want.data, want.n);
    assert_int_equal(w.file.data[want.n + 29], 0xaa);
    assert_int_equal(w.file.data[want.n + 30], 0);
    walk(&w);
    assert_int_equal(w.rc, 0);
    for (size_t i = 0; i < 4; i++)
        assert_memory_equal(rfs_intern_bytes(w.tables.types, w.index->entries[i].type, NULL),
                            &types[i], sizeof types[i]);
    rfs_image_free(image);
    bytes_free(&want);
    end(&w);
}

static void test_not_written(void **state)
{
    const struct rfs_type types[] = {type_of(RFS_BOOL, 1, (uint64_t[]){2}),
                                     type_of(RFS_FLOAT32, 5, (uint64_t[]){1, 1, 1, 1, 1}),
                                     type_of(RFS_FLOAT32, 1, (uint64_t[]){1})};
    const char *const said[] = {"is of type Bool, which GGUF files cannot hold", "has 5 dimensions",
                                "a name that is not UTF-8"};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        const struct rfs_image_tensor tensor = tensor_of(i == 2 ? "\xff" : "w", &types[i], 0);
        struct rfs_image *image;
        struct rfs_error err = {0};
        assert_int_equal(
            rfs_gguf_encode(&(struct rfs_gguf_content){.tensors = &tensor, .n = 1, .path = "src"},
                            &image, &err),
            -EINVAL);
        assert_null(image);
        assert_non_null(strstr(err.text, said[i]));
    }
}

/* Writes a config, and encodes a file without tensors by it. */
static int encode_by(const char *config, struct bytes *out, struct rfs_error *err)
{
    char *root = tree_new();
    struct rfs_image *image;
    char path[4096];

    tree_write(root, "config.json", config, strlen(config));
    snprintf(path, sizeof path, "%s/config.json", root);
    const int rc =
        rfs_gguf_encode(&(struct rfs_gguf_content){.path = "src", .config = path}, &image, err);
    if (rc == 0)
        write_image(image, out);
    rfs_image_free(image);
    tree_remove(root);
    return rc;
}

#define LLAMA                                                                                      \
    "\"model_type\":\"mistral\",\"vocab_size\":9,\"max_position_embeddings\":8,\"hidden_size\":6," \
    "\"num_hidden_layers\":5,\"intermediate_size\":4,\"num_attention_heads\":3"
#define REST                                                                                       \
    ",\"rms_norm_eps\":0.5,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7}"

static void test_config(void **state)
{
    static const struct {
        const char *key;
        unsigned type;
        uint64_t value;
    } values[] = {{"llama.vocab_size", RFS_GGUF_UINT32, 9},
                  {"llama.context_length", RFS_GGUF_UINT32, 8},
                  {"llama.embedding_length", RFS_GGUF_UINT32, 6},
                  {"llama.block_count", RFS_GGUF_UINT32, 5},
                  {"llama.feed_forward_length", RFS_GGUF_UINT32, 4},
                  {"llama.attention.head_count", RFS_GGUF_UINT32, 3},
                  {"llama.attention.head_count_kv", RFS_GGUF_UINT32, 3},
                  {"llama.attention.key_length", RFS_GGUF_UINT32, 2},
                  {"llama.attention.value_length", RFS_GGUF_UINT32, 2},
                  {"llama.attention.layer_norm_rms_epsilon", RFS_GGUF_FLOAT32, 0x3f000000},
                  {"llama.rope.dimension_count", RFS_GGUF_UINT32, 2},
                  {"llama.rope.freq_base", RFS_GGUF_FLOAT32, 0x40e00000}};
    static const struct {
        const char *config, *said;
    } wrong[] = {
        {"{", "config.json"},
        {"{}", "model_type ''"},
        {"{\"model_type\":\"gpt2\"}", "model_type 'gpt2'"},
        {"{" LLAMA "}", "'rms_norm_eps' is not there"},
        {"{" LLAMA ",\"rms_norm_eps\":\"1\"}", "'rms_norm_eps'"},
        {"{" LLAMA REST ",\"num_key_value_heads\":1.5}", "'num_key_value_heads' is no whole"},
        {"{" LLAMA REST ",\"num_key_value_heads\":-1}", "'num_key_value_heads'"},
        {"{" LLAMA REST ",\"num_key_value_heads\":1e300}", "'num_key_value_heads'"},
        {"{" LLAMA REST ",\"rope_scaling\":{\"type\":\"linear\"}}", "'rope_scaling' is scaled"},
    };
    struct bytes got = {0};
    struct bytes want = {0};
    struct rfs_error err = {0};

    (void)state;
    put_begin(&want, 3, 0, 1 + ARRAY_SIZE(values));
    put_key(&want, "general.architecture", RFS_GGUF_STRING);
    put_text(&want, "llama");
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        put_key(&want, values[i].key, values[i].type);
        put(&want, values[i].value, 4);
    }
    pad(&want, 32);
    assert_int_equal(encode_by("{" LLAMA REST "}", &got, &err), 0);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.data, want.data, want.n);
    bytes_free(&want);
    bytes_free(&got);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        assert_true(encode_by(wrong[i].config, &got, &err) < 0);
        if (!strstr(err.text, wrong[i].said))
            fail_msg("'%s' is not in '%s'", wrong[i].said, err.text);
    }
}

/* ---- files of gguf --------------------------------------------------------------------------- */

/* A fixture that is open. */
struct opened {
    struct rfs_catalog *catalog;
    const struct rfs_index *index;
};

static struct opened open_fixture(const char *name, bool dequantize)
{
    const char *top = getenv("top_srcdir");
    struct rfs_options options = rfs_options_defaults;
    struct opened o;
    struct rfs_error err;
    char path[4096];

    snprintf(path, sizeof path, "%s/tests/fixtures/gguf/%s", top ? top : ".", name);
    options.dequantize = dequantize;
    const struct rfs_source_spec spec = {.path = path, .options = &options, .wide = true};
    if (rfs_catalog_open(&spec, NULL, NULL, &o.catalog, &err) ||
        rfs_catalog_index(o.catalog, 0, RFS_NO_RANK, &o.index, &err))
        fail_msg("%s", err.text);
    return o;
}

/* Reads all bytes of an entry. */
static unsigned char *read_entry(const struct opened *o, const struct rfs_entry *entry, size_t n)
{
    RFS_CLEANUP(rfs_quant_scales_end) struct rfs_quant_scales scales = {0};
    const struct rfs_content content = rfs_catalog_content_of(o->index, entry);
    unsigned char *data = malloc(n + 1);
    struct rfs_reading reading;

    assert_int_equal(rfs_reading_begin(rfs_catalog_files(o->catalog), 0, &reading), 0);
    assert_int_equal(rfs_catalog_content_pread(&reading, &content, &scales, data, n, 0), 0);
    assert_int_equal(rfs_reading_end(&reading), 0);
    return data;
}

static void test_fixture(void **state)
{
    const struct opened blocks = open_fixture("blocks.gguf", true);
    const struct opened numbers = open_fixture("numbers.gguf", false);

    (void)state;
    assert_int_equal(blocks.index->n, 8);
    assert_int_equal(numbers.index->n, 8);
    assert_int_equal(blocks.index->n_quantized, 5);
    assert_int_equal(numbers.index->n_quantized, 0);
    for (size_t i = 0; i < 8; i++) {
        const struct rfs_entry *a = &blocks.index->entries[i];
        const struct rfs_entry *b = &numbers.index->entries[i];
        const struct rfs_type *type = rfs_catalog_type(blocks.catalog, a->type);
        assert_string_equal(rfs_catalog_name(blocks.catalog, a->name),
                            rfs_catalog_name(numbers.catalog, b->name));
        assert_memory_equal(type, rfs_catalog_type(numbers.catalog, b->type), sizeof *type);
        RFS_FREE unsigned char *got = read_entry(&blocks, a, type->bytes);
        RFS_FREE unsigned char *want = read_entry(&numbers, b, type->bytes);
        assert_memory_equal(got, want, type->bytes);
    }
    rfs_catalog_close(blocks.catalog);
    rfs_catalog_close(numbers.catalog);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),   cmocka_unit_test(test_values),
        cmocka_unit_test(test_listed),  cmocka_unit_test(test_parts),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_beginnings),
        cmocka_unit_test(test_written), cmocka_unit_test(test_not_written),
        cmocka_unit_test(test_config),  cmocka_unit_test(test_fixture),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
