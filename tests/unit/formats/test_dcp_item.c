/* SPDX-License-Identifier: Apache-2.0 */
/* Items of a distributed checkpoint's file: where the bytes of the tensor in one lie. */
#include "formats/dcp/dcp.h"
#include "tests/support/torch_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

struct memory {
    const struct bytes *bytes;
    unsigned reads;
};

static int read_bytes(void *ctx, void *buf, size_t n, uint64_t offset)
{
    struct memory *memory = ctx;
    assert_true(offset <= memory->bytes->n && n <= memory->bytes->n - offset);
    memcpy(buf, memory->bytes->data + offset, n);
    memory->reads++;
    return 0;
}

/* Adds an item; where it begins. ROWS and COLUMNS of float32, STRIDES or NULL. */
static uint64_t add_item(struct bytes *file, int64_t rows, int64_t columns, int64_t offset,
                         const int64_t *strides, const void *content)
{
    const uint64_t at = file->n;
    const bool expanded = strides && strides[0] == 0; /* one element again and again */
    const int64_t elements = expanded ? 1 : rows * columns + offset;
    struct torch_file item = {0};
    torch_tensor(&item, &(struct torch_tensor){.class = "FloatStorage",
                                               .key = "0",
                                               .elements = elements,
                                               .offset = offset,
                                               .ndim = 2,
                                               .dims = (const int64_t[]){rows, columns},
                                               .strides = strides});
    torch_storage(&item, "0", content, (size_t)elements * 4);
    const struct bytes *all = torch_end(&item);
    bytes_add(file, all->data, all->n);
    torch_free(&item);
    return at;
}

static struct rfs_dcp_file_item item_of(uint64_t offset, uint64_t bytes, const uint64_t *sizes)
{
    return (struct rfs_dcp_file_item){.file = "__0_0.distcp",
                                      .param = "w",
                                      .offset = offset,
                                      .bytes = bytes,
                                      .dtype = RFS_FLOAT32,
                                      .ndim = 2,
                                      .sizes = sizes};
}

static void found(const struct bytes *file, uint64_t offset, uint64_t end, uint64_t rows,
                  uint64_t columns, const void *content)
{
    const uint64_t sizes[] = {rows, columns};
    const struct rfs_dcp_file_item item = item_of(offset, end - offset, sizes);
    struct memory memory = {.bytes = file};
    struct rfs_error err = {0};
    struct rfs_chunk_place place = {0};
    if (rfs_dcp_item_find(&item, RFS_BYTES_SOURCE(read_bytes, &memory, file->n, NULL), &place,
                          &err))
        fail_msg("%s", err.text);
    const uint64_t at = place.at;
    assert_false(place.strided);
    assert_true(at > offset && at + rows * columns * 4 < end);
    assert_memory_equal(file->data + at, content, rows * columns * 4);
    assert_true(memory.reads <= 2);
}

static void refused(const struct bytes *file, const struct rfs_dcp_file_item *item, int code,
                    const char *part)
{
    struct memory memory = {.bytes = file};
    struct rfs_error err = {0};
    struct rfs_chunk_place place = {.at = 7};
    assert_int_equal(
        rfs_dcp_item_find(item, RFS_BYTES_SOURCE(read_bytes, &memory, file->n, NULL), &place, &err),
        code);
    if (!strstr(err.text, part) || strncmp(err.text, "__0_0.distcp", 12) != 0)
        fail_msg("no '%s' in: %s", part, err.text);
    assert_int_equal(place.at, 7);
    assert_int_equal(
        rfs_dcp_item_find(item, RFS_BYTES_SOURCE(read_bytes, &memory, file->n, NULL), &place, NULL),
        code);
}

static float values[20000];

static void test_finds(void **state)
{
    (void)state;
    struct bytes file = {0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = (float)i;
    bytes_add(&file, "odd", 3); /* whatever is before it */
    const uint64_t a = add_item(&file, 2, 3, 0, NULL, values + 5);
    const uint64_t b = add_item(&file, 100, 200, 0, NULL, values);
    const uint64_t c = add_item(&file, 1, 4, 0, (const int64_t[]){1, 1}, values + 9);
    const uint64_t end = file.n;
    bytes_add(&file, "behind", 6);
    found(&file, a, b, 2, 3, values + 5);
    found(&file, b, c, 100, 200, values);
    found(&file, c, end, 1, 4, values + 9);
    bytes_free(&file);
}

/* Transposed, so that the rows of the tensor are columns of what is stored. */
static void test_strides(void **state)
{
    (void)state;
    struct bytes file = {0};
    const uint64_t sizes[] = {3, 4};
    for (size_t i = 0; i < 12; i++)
        values[i] = (float)i;
    bytes_add(&file, "odd", 3);
    const uint64_t a = add_item(&file, 3, 4, 0, (const int64_t[]){1, 3}, values);
    const struct rfs_dcp_file_item item = item_of(a, file.n - a, sizes);
    struct memory memory = {.bytes = &file};
    struct rfs_chunk_place place = {0};
    assert_int_equal(
        rfs_dcp_item_find(&item, RFS_BYTES_SOURCE(read_bytes, &memory, file.n, NULL), &place, NULL),
        0);
    assert_true(place.strided);
    for (size_t row = 0; row < 3; row++)
        for (size_t column = 0; column < 4; column++)
            assert_memory_equal(file.data + place.at + row * place.stride[0] +
                                    column * place.stride[1],
                                &values[row + 3 * column], 4);
    assert_true(memory.reads <= 2);
    bytes_free(&file);
}

static void test_refuses(void **state)
{
    (void)state;
    struct bytes file = {0};
    const uint64_t two[] = {2, 3};
    const uint64_t other[] = {3, 2};
    bytes_add(&file, "odd", 3);
    const uint64_t a = add_item(&file, 2, 3, 0, NULL, values);
    const uint64_t b = add_item(&file, 2, 3, 0, (const int64_t[]){0, 0}, values);
    const uint64_t end = file.n;
    struct rfs_dcp_file_item item = item_of(a, b - a, other);
    refused(&file, &item, -EINVAL, "is Float32 [2, 3] here, and Float32 [3, 2] in the metadata");
    item = item_of(a, b - a, two);
    item.dtype = RFS_INT32;
    refused(&file, &item, -EINVAL, "is Float32 [2, 3] here, and Int32 [2, 3] in the metadata");
    item = item_of(a, b - a, two);
    item.ndim = 1;
    refused(&file, &item, -EINVAL, "is Float32 [2, 3] here, and Float32 [2] in the metadata");
    item = item_of(b, end - b, two);
    refused(&file, &item, -ENOTSUP, "(item at ");
    refused(&file, &item, -ENOTSUP, "parameter 'w': the tensor has more elements than are stored");
    item = item_of(a + 1, b - a - 1, two);
    refused(&file, &item, -EINVAL, "not written by torch.save");
    item = item_of(a, b - a - 1, two);
    refused(&file, &item, -EINVAL, "no zip directory");
    item = item_of(a, 0, two);
    refused(&file, &item, -EINVAL, "truncated, or not written by torch.save");
    item = item_of(b, end - b + 1, two);
    refused(&file, &item, -EINVAL, "and the file has only ");
    item = item_of(UINT64_MAX, 2, two);
    refused(&file, &item, -EINVAL, "and the file has only ");
    bytes_free(&file);
}

static void test_other_contents(void **state)
{
    (void)state;
    const uint64_t two[] = {2, 3};
    struct bytes file = {0};
    bytes_add(&file, "\x20\0\0\0\0\0\0\0{\"w\":{}}", 16);
    struct rfs_dcp_file_item item = item_of(0, file.n, two);
    refused(&file, &item, -ENOTSUP, "is stored as safetensors in the checkpoint's file");
    bytes_free(&file);
    struct torch_file object = {0};
    torch_int(&object, 7);
    const struct bytes *all = torch_end(&object);
    item = item_of(0, all->n, two);
    refused(all, &item, -EINVAL, "there is no tensor here");
    torch_free(&object);
}

/* No change of a byte leads out of the item. */
static void test_changes(void **state)
{
    (void)state;
    struct bytes file = {0};
    const uint64_t sizes[] = {2, 3};
    add_item(&file, 1, 2, 0, NULL, values);
    const uint64_t a = add_item(&file, 2, 3, 0, NULL, values);
    const uint64_t end = file.n;
    add_item(&file, 1, 2, 0, NULL, values);
    const struct rfs_dcp_file_item item = item_of(a, end - a, sizes);
    for (uint64_t i = a; i < end; i++) {
        const unsigned char was = file.data[i];
        for (int k = 0; k < 3; k++) {
            struct memory memory = {.bytes = &file};
            struct rfs_error err = {0};
            struct rfs_chunk_place place = {0};
            file.data[i] = (unsigned char)(k == 0 ? 0 : k == 1 ? 0xff : was ^ 1);
            const int rc = rfs_dcp_item_find(
                &item, RFS_BYTES_SOURCE(read_bytes, &memory, file.n, NULL), &place, &err);
            if (!place.strided) {
                place.stride[0] = 12;
                place.stride[1] = 4;
            }
            const uint64_t last = place.at + place.stride[0] + 2 * place.stride[1] + 4;
            assert_true(rc == 0 ? place.at >= a && last <= end : err.text[0] != '\0');
        }
        file.data[i] = was;
    }
    bytes_free(&file);
}

static int prove(const struct bytes *file, bool all, struct rfs_error *err)
{
    const struct rfs_dcp_file_item item = {
        .file = "__0_0.distcp", .param = "step", .bytes = file->n};
    struct memory memory = {.bytes = file};
    return rfs_dcp_item_prove(&item, RFS_BYTES_SOURCE(read_bytes, &memory, file->n, NULL), all,
                              err);
}

static void unproved(const struct bytes *file, bool all, const char *part)
{
    struct rfs_error err = {0};
    assert_int_equal(prove(file, all, &err), -EINVAL);
    if (!strstr(err.text, part) || !strstr(err.text, "__0_0.distcp (item at 0, 'step')"))
        fail_msg("no '%s' in: %s", part, err.text);
}

static uint32_t get(const unsigned char *at, unsigned bytes)
{
    uint32_t number = 0;
    while (bytes-- > 0)
        number = number << 8 | at[bytes];
    return number;
}

/*
 * The entry of an archive that ends in NAME: where its bytes are, and their number. SUM: with
 * checksum.
 */
static unsigned char *entry(struct bytes *file, const char *name, bool sum, size_t *n)
{
    for (unsigned char *p = file->data; p + 46 < file->data + file->n; p++) {
        const size_t length = strlen(name);
        if (memcmp(p, "PK\1\2", 4) != 0 || get(p + 28, 2) < length ||
            memcmp(p + 46 + get(p + 28, 2) - length, name, length) != 0)
            continue;
        unsigned char *local = file->data + get(p + 42, 4);
        unsigned char *content = local + 30 + get(local + 26, 2) + get(local + 28, 2);
        *n = get(p + 24, 4);
        const uint32_t crc = sum ? (uint32_t)crc32(0, content, (uInt)*n) : 0;
        for (int i = 0; i < 4; i++)
            p[16 + i] = (unsigned char)(crc >> 8 * i);
        return content;
    }
    fail_msg("no %s", name);
    return NULL;
}

static void test_proves(void **state)
{
    (void)state;
    struct bytes file = {0};
    size_t n;
    add_item(&file, 20, 30, 0, NULL, values);
    unsigned char *storage = entry(&file, "/data/0", true, &n);
    unsigned char *pickle = entry(&file, "/data.pkl", true, &n);
    assert_int_equal(prove(&file, true, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        pickle[i] ^= 4;
        assert_int_equal(prove(&file, false, NULL), -EINVAL);
        pickle[i] ^= 4;
    }
    storage[1000] ^= 1;
    assert_int_equal(prove(&file, false, NULL), 0);
    unproved(&file, true, "'x/data/0': the archive's entry is damaged: its CRC-32 is");
    entry(&file, "/data/0", false, &n);
    assert_int_equal(prove(&file, true, NULL), 1);
    file.n--;
    unproved(&file, false, "no zip directory");
    memset(file.data, 0, file.n);
    unproved(&file, false, "not written by torch.save");
    bytes_free(&file);
}

/* torch.save writes 0 where it was to compute no checksums. */
static void test_proves_without_sums(void **state)
{
    (void)state;
    struct bytes file = {0};
    size_t n;
    add_item(&file, 2, 3, 0, NULL, values);
    unsigned char *pickle = entry(&file, "/data.pkl", false, &n);
    assert_int_equal(prove(&file, false, NULL), 0);
    assert_int_equal(prove(&file, true, NULL), 1);
    pickle[n - 1] = 'x';
    unproved(&file, false, "the pickle in it is damaged: it has no end");
    memset(pickle, 0, n);
    unproved(&file, false, "the pickle in it is damaged: it has no beginning");
    bytes_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds),          cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_other_contents), cmocka_unit_test(test_changes),
        cmocka_unit_test(test_proves),         cmocka_unit_test(test_proves_without_sums),
        cmocka_unit_test(test_strides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
