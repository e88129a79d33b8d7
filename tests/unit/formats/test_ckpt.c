/* SPDX-License-Identifier: Apache-2.0 */
/* The walk on files made here: random right ones, and every wrong one with its message. */
#include "tests/unit/store/writer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CASES 400
#define MAX_VALUES 60

struct expected {
    char name[48];
    struct rfs_type type;
    unsigned pieces;
    uint64_t bytes[4]; /* of each */
};

/* Fields of a tensor in any order, with packed dims and unknown fields. */
static struct bytes odd_tensor(struct random *random, const struct rfs_type *type,
                               const void *content, size_t n)
{
    struct bytes t = {0};
    const unsigned first = (unsigned)random_below(random, 3);
    const bool packed = type->ndim > 1 && random_below(random, 2);
    for (unsigned k = 0; k < 3; k++) {
        const unsigned field = (first + k) % 3;
        if (random_below(random, 2)) { /* group 100 { 5: "xyz", group 6 { } } */
            bytes_varint(&t, 100 << 3 | 3);
            bytes_field(&t, 5, "xyz", 3);
            bytes_varint(&t, 6 << 3 | 3);
            bytes_varint(&t, 6 << 3 | 4);
            bytes_varint(&t, 100 << 3 | 4);
        }
        if (field == 0 && packed) {
            struct bytes dims = {0};
            for (unsigned i = 0; i < type->ndim; i++)
                bytes_varint(&dims, type->dims[i]);
            bytes_field(&t, 1, dims.p, dims.n);
            bytes_free(&dims);
        } else if (field == 0) {
            for (unsigned i = 0; i < type->ndim; i++)
                bytes_number(&t, 1, type->dims[i]);
        } else if (field == 1) {
            const char *dtype = rfs_dtype_name((enum rfs_dtype)type->dtype);
            bytes_field(&t, 2, dtype, strlen(dtype));
        } else {
            bytes_field(&t, 3, content, n);
        }
    }
    bytes_number(&t, 9, UINT64_MAX);
    bytes_varint(&t, 10 << 3 | 5);
    bytes_add(&t, "4byt", 4);
    return t;
}

static void put_odd(struct bytes *file, struct random *random, const struct expected *e,
                    const void *content, size_t n)
{
    struct bytes tensor = odd_tensor(random, &e->type, content, n);
    struct bytes value = {0};
    const bool late = random_below(random, 2);
    if (!late)
        bytes_field(&value, 1, e->name, strlen(e->name));
    bytes_field(&value, 2, tensor.p, tensor.n);
    bytes_varint(&value, 7 << 3 | 1);
    bytes_add(&value, "8 bytes!", 8);
    if (late)
        bytes_field(&value, 1, e->name, strlen(e->name));
    put_value(file, &value);
    if (random_below(random, 3) == 0)
        bytes_field(file, 4, "unknown at the top", 18);
    bytes_free(&tensor);
    bytes_free(&value);
}

/* A map value; its bytes are added to e. */
static void put_map(struct bytes *file, struct random *random, struct expected *e)
{
    const int64_t dims[] = {1 + (int64_t)random_below(random, 5)};
    struct bytes map = {0};
    for (unsigned i = 0; i < 3; i++) {
        const size_t n = (size_t)dims[0] * 4;
        struct bytes tensor = tensor_message(dims, 1, "int32", filler(n), n);
        bytes_field(&map, 1, tensor.p, tensor.n);
        bytes_free(&tensor);
    }
    struct bytes value = {0};
    bytes_field(&value, 1, e->name, strlen(e->name));
    bytes_field(&value, 3, map.p, map.n);
    put_value(file, &value);
    e->bytes[e->pieces++] = map.n;
    e->type.bytes += map.n;
    bytes_free(&map);
    bytes_free(&value);
}

static void random_type(struct random *random, struct expected *e)
{
    struct rfs_type *type = &e->type;
    const unsigned pick = (unsigned)random_below(random, 12);
    type->kind = pick == 0 ? RFS_MAP : pick == 1 ? RFS_STRING : RFS_TENSOR;
    type->dtype = (uint8_t)(pick == 0   ? RFS_UINT8
                            : pick == 1 ? RFS_STR
                                        : random_below(random, RFS_STR));
    if (type->kind == RFS_STRING) {
        type->ndim = 1;
        type->bytes = 4 * random_below(random, 30);
    } else if (type->kind == RFS_TENSOR) {
        type->ndim = (uint8_t)random_below(random, 5);
        type->bytes = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
        for (unsigned i = 0; i < type->ndim; i++) {
            type->dims[i] = random_below(random, 40) == 0 ? 0 : 1 + random_below(random, 12);
            type->bytes *= type->dims[i];
        }
    }
}

/* Writes value I of a file and says what should be found. */
static void put_random(struct bytes *file, struct random *random, unsigned i, bool odd,
                       struct expected *e)
{
    *e = (struct expected){.pieces = 0};
    snprintf(e->name, sizeof e->name, "p%u.%s", i,
             random_below(random, 4) ? "weight" : "gewichtung.größe.試験");
    random_type(random, e);
    const unsigned pieces = random_below(random, 4) ? 1 : 1 + (unsigned)random_below(random, 3);
    if (e->type.kind == RFS_MAP) {
        for (unsigned k = 0; k < pieces; k++)
            put_map(file, random, e);
        return;
    }
    int64_t dims[RFS_MAX_DIMS];
    for (unsigned k = 0; k < e->type.ndim; k++)
        dims[k] = (int64_t)e->type.dims[k];
    const char *dtype = rfs_dtype_name((enum rfs_dtype)e->type.dtype);
    uint64_t left = e->type.bytes;
    while (left > 0 || e->pieces == 0) {
        const uint64_t n = e->pieces + 1 == pieces ? left : 1 + random_below(random, left + 1);
        const size_t take = (size_t)(n < left ? n : left);
        if (odd)
            put_odd(file, random, e, filler(take), take);
        else
            put_tensor(file, e->name, dims, e->type.ndim, dtype, filler(take), take);
        e->bytes[e->pieces++] = take;
        left -= take;
        if (e->pieces == pieces && left == 0)
            break;
    }
}

static void check_entry(const struct rfs_index *index, size_t i, const struct expected *e,
                        const struct bytes *file, struct rfs_tables *tables)
{
    const struct rfs_entry *entry = &index->entries[i];
    const struct rfs_type *type = rfs_intern_bytes(tables->types, entry->type, NULL);
    assert_string_equal(rfs_intern_text(tables->names, entry->name), e->name);
    assert_memory_equal(type, &e->type, sizeof *type);
    assert_int_equal(entry->extent_count, e->pieces > 1 ? e->pieces : 0);
    const struct rfs_extent one = {entry->offset, type->bytes};
    for (unsigned k = 0; k < e->pieces; k++) {
        const struct rfs_extent x = e->pieces > 1 ? index->extents[entry->extent + k] : one;
        assert_int_equal(x.bytes, e->bytes[k]);
        if (k == 0)
            assert_int_equal(x.offset, entry->offset);
        if (e->type.kind == RFS_MAP)
            assert_int_equal(file->p[x.offset], 0x0a);
        else
            assert_memory_equal(file->p + x.offset, filler(x.bytes), x.bytes);
    }
    assert_ptr_equal(rfs_index_find(index, entry->name), entry);
}

static void one_random(struct random *random)
{
    static struct expected expected[MAX_VALUES];
    struct bytes file = {0};
    const unsigned n = 1 + (unsigned)random_below(random, MAX_VALUES);
    const bool odd = random_below(random, 2);
    const bool crc = random_below(random, 2);
    for (unsigned i = 0; i < n; i++)
        put_random(&file, random, i, odd, &expected[i]);
    if (crc)
        bytes_add(&file, "crc_num\0\0\0\0\0\0\1\2\3\4", 17);

    struct rfs_tables tables = tables_new();
    struct rfs_index *index;
    struct rfs_error err = {0};
    struct memory memory = {.p = file.p, .n = file.n};
    if (rfs_ckpt_walk(RFS_BYTES_SOURCE(memory_read, &memory, file.n, "f.ckpt"), &tables, &index,
                      &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(index->n, n);
    assert_int_equal(index->has_crc, crc);
    for (unsigned i = 0; i < n; i++)
        check_entry(index, i, &expected[i], &file, &tables);
    assert_true(rfs_index_memory(index) <= sizeof *index + 32 * index->n + 16 * index->n_extents);
    assert_null(rfs_index_find(index, RFS_NO_ID - 1));

    /* Cut anywhere but between two parameters, it is refused, and never read past its end. */
    for (unsigned k = 0; k < 20; k++) {
        struct rfs_index *cut = NULL;
        memory.n = (size_t)random_below(random, file.n);
        const int rc = rfs_ckpt_walk(RFS_BYTES_SOURCE(memory_read, &memory, memory.n, "f.ckpt"),
                                     &tables, &cut, &err);
        assert_true(rc == 0 ? cut->n <= n : strstr(err.text, "f.ckpt: ") != NULL);
        assert_true(rc == 0 || rc == (memory.n == 0 ? -ENODATA : -EINVAL));
        rfs_index_free(cut);
    }
    rfs_index_free(index);
    tables_free(&tables);
    bytes_free(&file);
}

static void test_random(void **state)
{
    (void)state;
    struct random random = {random_seed()};
    for (unsigned i = 0; i < CASES; i++)
        one_random(&random);
}

/* Headers at given places, zeros between; for files that are too large to make. */
struct sparse {
    struct memory head[8];
    uint64_t at[8];
    unsigned n;
    uint64_t size, read;
};

static int sparse_read(void *ctx, void *buf, size_t n, uint64_t offset)
{
    struct sparse *s = ctx;
    unsigned char *out = buf;
    assert_true(offset <= s->size && n <= s->size - offset);
    s->read += n;
    for (size_t i = 0; i < n; i++) {
        out[i] = 0;
        for (unsigned k = 0; k < s->n; k++)
            if (offset + i >= s->at[k] && offset + i - s->at[k] < s->head[k].n)
                out[i] = s->head[k].p[offset + i - s->at[k]];
    }
    return 0;
}

/* The bytes of a value before its content. */
static struct bytes header_of(const char *tag, const int64_t *dims, unsigned ndim, uint64_t content)
{
    struct bytes t = tensor_message(dims, ndim, "Float32", "", 0);
    t.n--; /* the content's length, which is 0 there */
    bytes_varint(&t, content);
    struct bytes v = {0};
    struct bytes f = {0};
    bytes_field(&v, 1, tag, strlen(tag));
    bytes_varint(&v, 2 << 3 | 2);
    bytes_varint(&v, t.n + content);
    bytes_add(&v, t.p, t.n);
    bytes_varint(&f, 1 << 3 | 2);
    bytes_varint(&f, v.n + content);
    bytes_add(&f, v.p, v.n);
    bytes_free(&t);
    bytes_free(&v);
    return f;
}

static void test_large(void **state)
{
    (void)state;
    const uint64_t chunk = UINT64_C(512) << 20;
    const int64_t dims[] = {3 << 10, 128 << 10}; /* 1.5 GiB */
    struct bytes head[4];
    struct sparse s = {.n = 4};
    for (unsigned i = 0; i < 4; i++) {
        const int64_t small[] = {1 << 28};
        const uint64_t n = i < 3 ? chunk : UINT64_C(1) << 30;
        head[i] = i < 3 ? header_of("big", dims, 2, n) : header_of("one", small, 1, n);
        s.at[i] = s.size;
        s.head[i] = (struct memory){.p = head[i].p, .n = head[i].n};
        s.size += head[i].n + n;
    }
    struct rfs_tables tables = tables_new();
    struct rfs_index *index;
    struct rfs_error err = {0};
    if (rfs_ckpt_walk(RFS_BYTES_SOURCE(sparse_read, &s, s.size, "f.ckpt"), &tables, &index, &err) <
        0)
        fail_msg("%s", err.text);
    assert_int_equal(index->n, 2);
    assert_int_equal(index->entries[0].extent_count, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(index->extents[i].offset, s.at[i] + head[i].n);
        assert_int_equal(index->extents[i].bytes, chunk);
    }
    assert_true(s.read <= 5 * 4096); /* contents were not read */
    s.read = 0;
    assert_int_equal(
        rfs_ckpt_matches(RFS_BYTES_SOURCE(sparse_read, &s, s.size, NULL), index, &tables, NULL), 1);
    assert_true(s.read <= 4 * 4096);
    rfs_index_free(index);

    s.size -= 1; /* the last byte is missing */
    assert_int_equal(
        rfs_ckpt_walk(RFS_BYTES_SOURCE(sparse_read, &s, s.size, "f.ckpt"), &tables, &index, &err),
        -EINVAL);
    char want[96];
    snprintf(want, sizeof want, "offset %llu: parameter 'one'",
             (unsigned long long)(s.at[3] + head[3].n));
    assert_non_null(strstr(err.text, want));
    assert_non_null(strstr(err.text, "ends after 1073741823 of its 1073741824 bytes"));
    for (unsigned i = 0; i < 4; i++)
        bytes_free(&head[i]);
    tables_free(&tables);
}

/* Small values are found in the windows that were read for those before them. */
static void test_few_reads(void **state)
{
    (void)state;
    struct bytes file = {0};
    const int64_t dims[] = {4};
    for (unsigned i = 0; i < 1000; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer.%u.bias", i);
        put_tensor(&file, name, dims, 1, "Float32", filler(16), 16);
    }
    struct rfs_tables tables = tables_new();
    struct rfs_index *index;
    struct memory memory = {.p = file.p, .n = file.n};
    assert_int_equal(
        rfs_ckpt_walk(RFS_BYTES_SOURCE(memory_read, &memory, file.n, "f"), &tables, &index, NULL),
        0);
    assert_int_equal(index->n, 1000);
    assert_true(memory.reads <= file.n / 4000 + 2);
    assert_true(rfs_index_memory(index) <= sizeof *index + 32 * index->n);
    memory.fail = -EIO;
    struct rfs_index *none;
    struct rfs_error err = {0};
    assert_int_equal(
        rfs_ckpt_walk(RFS_BYTES_SOURCE(memory_read, &memory, file.n, "f"), &tables, &none, &err),
        -EIO);
    assert_null(none);
    assert_non_null(strstr(err.text, "cannot be read"));
    assert_int_equal(rfs_ckpt_matches(RFS_BYTES_SOURCE(memory_read, &memory, file.n, NULL), index,
                                      &tables, NULL),
                     -EIO);
    rfs_index_free(index);
    tables_free(&tables);
    bytes_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_few_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
