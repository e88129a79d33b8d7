/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of files of torch.save, read by the reader of such files: what is where, checksums, sizes
 * over 4 GiB.
 */
#include "formats/torch/torch_encode.h"
#include "plan/slice.h"
#include "tests/support/tree.h"
#include "tests/unit/formats/encoded.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

/* The byte at an offset of the one source file. */
static unsigned char source_byte(uint64_t offset)
{
    const uint64_t z = (offset + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned char)(z >> 56 ^ z >> 24);
}

static uint32_t source_sum(uint64_t offset, uint64_t n, uint32_t sum)
{
    for (uint64_t i = 0; i < n; i++) {
        const unsigned char byte = source_byte(offset + i);
        sum = (uint32_t)crc32(sum, &byte, 1);
    }
    return sum;
}

/* ---- reading an image ---- */

/* A byte of a target: of a stock's ranges, or 0 of a list's. */
static unsigned char target_byte(const struct rfs_image *image, uint32_t target, uint64_t at)
{
    struct rfs_slice slice = {0};
    unsigned char byte = 0;

    if (!image->storages)
        return 0;
    assert_int_equal(rfs_slice_storage(image->storages, target, &slice), 0);
    for (size_t i = 0; i < slice.n; i++) {
        const struct rfs_block *block = &slice.blocks[i];
        assert_int_equal(block->n_loops, 0);
        if (at >= block->dst && at < block->dst_end)
            byte = source_byte(block->content.offset + at - block->dst);
    }
    rfs_slice_free(&slice);
    return byte;
}

static unsigned char image_byte(const struct rfs_image *image, uint64_t offset);

static uint32_t region_sum(const struct rfs_image *image, size_t region)
{
    const uint64_t end = rfs_image_end(image, region);
    uint32_t sum = 0;

    assert_true(image->regions[region].target < RFS_NO_TARGET);
    for (uint64_t at = image->regions[region].start; at < end; at++) {
        const unsigned char byte = image_byte(image, at);
        sum = (uint32_t)crc32(sum, &byte, 1);
    }
    return sum;
}

static unsigned char image_byte(const struct rfs_image *image, uint64_t offset)
{
    const struct rfs_region *region = &image->regions[rfs_image_find(image, offset)];
    const uint64_t skip = offset - region->start;

    if (region->target == RFS_LITERAL)
        return image->literals[region->at + skip];
    if (region->target == RFS_STORAGE_CRC)
        return (unsigned char)(region_sum(image, (size_t)(region->at >> 3)) >>
                               8 * ((region->at & 7) + skip));
    assert_true(region->target < RFS_NO_TARGET);
    return target_byte(image, region->target, region->at + skip);
}

static int read_image(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct rfs_image *image = ctx;
    unsigned char *out = buf;

    assert_true(offset <= image->bytes && n <= image->bytes - offset);
    for (size_t i = 0; i < n; i++)
        out[i] = image_byte(image, offset + i);
    return 0;
}

static void open_image(struct rfs_image *image, struct rfs_torch *torch)
{
    struct rfs_error err = {0};

    expect_covered(image);
    if (rfs_torch_open(RFS_BYTES_SOURCE(read_image, image, image->bytes, "x.pt"), 0, torch, &err))
        fail_msg("%s", err.text);
    if (rfs_torch_check(torch, "x.pt", &err))
        fail_msg("%s", err.text);
}

static uint64_t number(const struct rfs_image *image, uint64_t offset, unsigned n)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < n; i++)
        value |= (uint64_t)image_byte(image, offset + i) << 8 * i;
    return value;
}

/* Contents are aligned, and what stands behind one says the same as the directory. */
static void expect_descriptors(const struct rfs_image *image, const struct rfs_zip *zip)
{
    for (size_t i = 0; i < zip->n; i++) {
        const struct rfs_zip_entry *entry = &zip->entries[i];
        const unsigned width = entry->bytes >= UINT32_MAX || entry->header >= UINT32_MAX ? 8 : 4;
        const uint64_t end = entry->offset + entry->bytes;
        assert_int_equal(entry->offset % 64, 0);
        assert_int_equal(number(image, entry->header + 6, 2), entry->bytes ? 0x808 : 0x800);
        if (entry->bytes == 0)
            continue;
        assert_int_equal(number(image, end, 4), 0x08074b50);
        assert_int_equal(number(image, end + 4, 4), entry->crc);
        assert_int_equal(number(image, end + 8, width), entry->bytes);
        assert_int_equal(number(image, end + 8 + width, width), entry->bytes);
    }
}

static struct rfs_torch_tensor tensor_of(const struct rfs_torch *torch, const char *name)
{
    const struct rfs_node *node = rfs_pickle_get(torch->pickle.root, name);
    struct rfs_torch_tensor tensor;

    assert_non_null(node);
    assert_int_equal(rfs_torch_tensor(torch, node, "x.pt", name, &tensor, NULL), 1);
    assert_true(tensor.contiguous);
    assert_int_equal(tensor.offset, 0);
    return tensor;
}

/* ---- storages made of ranges ---- */

enum { RECORDS = 12, STORAGES = 9, RANGES = 5 };

struct expected {
    struct rfs_zip_entry record[RECORDS];
    struct rfs_range range[STORAGES][RANGES];
    unsigned n_ranges[STORAGES];
};

static void make_records(uint64_t *random, struct expected *expected)
{
    uint64_t offset = 0;

    for (unsigned i = 0; i < RECORDS; i++) {
        struct rfs_zip_entry *record = &expected->record[i];
        offset += test_below(random, 100);
        *record = (struct rfs_zip_entry){.name = "x/data/0",
                                         .name_bytes = 8,
                                         .offset = offset,
                                         .bytes = test_below(random, 200)};
        if (test_below(random, 4) > 0)
            record->crc = source_sum(offset, record->bytes, 0);
        offset += record->bytes;
    }
}

/* A dict of bytes tensors t0, t1, …, of which the last is in it a second time. */
static void make_document(uint64_t *random, struct expected *expected, struct rfs_document *out)
{
    struct rfs_node *dict = rfs_document_container(out, RFS_NODE_DICT);
    struct rfs_node *tensor = NULL;

    for (unsigned i = 0; i < STORAGES; i++) {
        uint64_t bytes = 0;
        char name[16];
        rfs_document_reserve(out, 0);
        expected->n_ranges[i] = test_below(random, RANGES + 1);
        for (unsigned k = 0; k < expected->n_ranges[i]; k++) {
            const struct rfs_zip_entry *record = &expected->record[test_below(random, RECORDS)];
            const bool whole = test_below(random, 4) > 0;
            const uint64_t from = whole ? 0 : test_below(random, (uint32_t)record->bytes + 1);
            const uint64_t n =
                whole ? record->bytes : test_below(random, (uint32_t)(record->bytes - from) + 1);
            expected->range[i][k] = (struct rfs_range){record, from, n, 0};
            rfs_document_range(out, &expected->range[i][k]);
            bytes += n;
        }
        tensor = rfs_document_tensor(out, RFS_UINT8, 1, &bytes);
        snprintf(name, sizeof name, "t%u", i);
        rfs_document_add(out, dict, rfs_document_text(out, name));
        rfs_document_add(out, dict, tensor);
    }
    rfs_document_add(out, dict, rfs_document_text(out, "again"));
    rfs_document_add(out, dict, tensor);
    assert_false(out->failed);
    out->root = dict;
}

/* One storage in the image: its bytes, and its checksum if it can be known or is asked for. */
static void expect_storage(const struct rfs_image *image, const struct expected *expected,
                           unsigned i, const struct rfs_zip_entry *record, bool summed)
{
    uint64_t at = record->offset;
    uint32_t sum = 0;
    bool known = true;

    for (unsigned k = 0; k < expected->n_ranges[i]; k++) {
        const struct rfs_range *range = &expected->range[i][k];
        const uint64_t source = range->record->offset + range->offset;
        known &=
            range->bytes == 0 || (range->bytes == range->record->bytes && range->record->crc != 0);
        sum = source_sum(source, range->bytes, sum);
        for (uint64_t b = 0; b < range->bytes; b++)
            assert_int_equal(image_byte(image, at + b), source_byte(source + b));
        at += range->bytes;
    }
    assert_int_equal(at - record->offset, record->bytes);
    assert_int_equal(record->crc, known || summed ? sum : 0);
}

static void check_random(uint64_t *random)
{
    struct expected expected;
    struct rfs_document document = {0};
    struct rfs_image *image;
    struct rfs_torch torch;
    struct rfs_error err = {0};
    const bool summed = test_below(random, 2);

    make_records(random, &expected);
    make_document(random, &expected, &document);
    const struct rfs_torch_origin origin = {.path = "x.pt"};
    const struct rfs_torch_content content = {
        .document = &document, .origins = &origin, .stem = "PART_007", .crc = summed};
    if (rfs_torch_encode(&content, &image, &err))
        fail_msg("%s", err.text);
    rfs_document_free(&document);
    open_image(image, &torch);
    assert_int_equal(torch.prefix_bytes, 8);
    assert_memory_equal(torch.prefix, "PART_007", 8);
    assert_int_equal(torch.zip.n, STORAGES + 3);
    expect_descriptors(image, &torch.zip);
    for (unsigned i = 0; i < STORAGES; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        expect_storage(image, &expected, i, tensor_of(&torch, name).record, summed);
    }
    assert_ptr_equal(rfs_pickle_get(torch.pickle.root, "again"),
                     rfs_pickle_get(torch.pickle.root, "t8"));
    rfs_torch_free(&torch);
    rfs_image_free(image);
}

static void test_ranges(void **state)
{
    uint64_t random = test_seed();

    (void)state;

    for (unsigned i = 0; i < 60; i++)
        check_random(&random);
}

/* ---- lists of tensors ---- */

static struct rfs_image *dict_image(struct world *w, const char *stem)
{
    struct rfs_document document = {0};
    struct rfs_image *image = NULL;
    const struct rfs_torch_content content = {.document = &document, .stem = stem};

    if (rfs_document_dict(&document, w->tensors, w->n, "/source", &w->err) ||
        rfs_torch_encode(&content, &image, &w->err))
        fail_msg("%s", w->err.text);
    rfs_document_free(&document);
    return image;
}

static void test_every_dtype(void **state)
{
    static const enum rfs_dtype dtypes[] = {
        RFS_FLOAT64,       RFS_FLOAT32,     RFS_FLOAT16,         RFS_BFLOAT16,
        RFS_INT64,         RFS_INT32,       RFS_INT16,           RFS_INT8,
        RFS_UINT8,         RFS_BOOL,        RFS_UINT16,          RFS_UINT32,
        RFS_UINT64,        RFS_COMPLEX64,   RFS_COMPLEX128,      RFS_FLOAT8_E4M3FN,
        RFS_FLOAT8_E5M2,   RFS_FLOAT8_E8M0, RFS_FLOAT8_E4M3FNUZ, RFS_FLOAT8_E5M2FNUZ,
        RFS_FLOAT4_E2M1_X2};
    const uint64_t dims[] = {3, 0, 5};
    struct world *w = *state;
    struct rfs_torch torch;

    for (unsigned i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char name[32];
        snprintf(name, sizeof name, "%u", i);
        /* Of no axis, of one, of no elements. */
        add_tensor(w, name, dtypes[i], i % 3 == 2 ? 3 : i % 3, dims);
    }
    struct rfs_image *image = dict_image(w, "archive");
    open_image(image, &torch);
    expect_descriptors(image, &torch.zip);
    for (unsigned i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char name[32];
        snprintf(name, sizeof name, "%u", i);
        const struct rfs_torch_tensor tensor = tensor_of(&torch, name);
        const uint64_t elements = i % 3 == 2 ? 0 : i % 3 == 1 ? 3 : 1;
        assert_int_equal(tensor.dtype, dtypes[i]);
        assert_int_equal(tensor.elements, elements);
        assert_int_equal(tensor.record->bytes, elements * rfs_dtype_bytes(dtypes[i]));
        if (elements == 0)
            continue;
        const size_t region = rfs_image_find(image, tensor.record->offset);
        assert_int_equal(image->regions[region].target, i);
        assert_int_equal(image->regions[region].at, 0);
    }
    rfs_torch_free(&torch);
    rfs_image_free(image);
}

/* Around the sizes and the offsets at which a zip archive needs wide numbers. */
static void test_beyond_4_gib(void **state)
{
    static const uint64_t sizes[] = {7,  UINT32_MAX - 1,    9, UINT32_MAX, UINT32_MAX + UINT64_C(1),
                                     11, UINT64_C(5) << 40, 13};
    struct world *w = *state;
    struct rfs_torch torch;

    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i);
        add_tensor(w, name, RFS_INT8, 1, &sizes[i]);
    }
    struct rfs_image *image = dict_image(w, "archive");
    open_image(image, &torch);
    expect_descriptors(image, &torch.zip);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i);
        const struct rfs_torch_tensor tensor = tensor_of(&torch, name);
        assert_int_equal(tensor.elements, sizes[i]);
        const size_t region = rfs_image_find(image, tensor.record->offset);
        assert_int_equal(image->regions[region].start, tensor.record->offset);
        assert_int_equal(image->regions[region].target, i);
        assert_int_equal(rfs_image_end(image, region), tensor.record->offset + sizes[i]);
    }
    rfs_torch_free(&torch);
    rfs_image_free(image);
}

/* More entries than the plain end of an archive can count. */
static void test_many_entries(void **state)
{
    const uint64_t one = 1;
    struct world *w = *state;
    struct rfs_torch torch;

    for (unsigned i = 0; i < 66000; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i);
        add_tensor(w, name, RFS_INT8, 1, &one);
    }
    struct rfs_image *image = dict_image(w, "archive");
    assert_int_equal(number(image, image->bytes - 12, 2), 0xffff);
    open_image(image, &torch);
    assert_int_equal(torch.zip.n, 66003);
    assert_int_equal(
        image->regions[rfs_image_find(image, tensor_of(&torch, "65999").record->offset)].target,
        65999);
    rfs_torch_free(&torch);
    rfs_image_free(image);
}

/* A prefix may cross the multiples of 64 to which contents are moved, anywhere. */
static void test_stems(void **state)
{
    const uint64_t dims[] = {5};
    struct world *w = *state;
    char stem[256];

    add_tensor(w, "w", RFS_FLOAT32, 1, dims);
    for (size_t n = 1; n < sizeof stem; n++) {
        struct rfs_torch torch;
        memset(stem, 'x', n);
        stem[n] = '\0';
        struct rfs_image *image = dict_image(w, stem);
        open_image(image, &torch);
        assert_int_equal(torch.prefix_bytes, n);
        expect_descriptors(image, &torch.zip);
        rfs_torch_free(&torch);
        rfs_image_free(image);
    }
}

static void expect_refused(struct world *w, const char *what)
{
    struct rfs_document document = {0};

    assert_int_equal(rfs_document_dict(&document, w->tensors, w->n, "/source", &w->err), -EINVAL);
    if (!strstr(w->err.text, what))
        fail_msg("no '%s' in: %s", what, w->err.text);
    rfs_document_free(&document);
    w->n = 0;
}

static void test_what_torch_has_not(void **state)
{
    const uint64_t dims[] = {2};
    struct world *w = *state;

    add_target(w, "s", RFS_STRING, RFS_STR, 0, NULL, 3);
    expect_refused(w, ": is a string, and torch has no tensors of that type");
    add_target(w, "m", RFS_MAP, RFS_INT32, 0, NULL, 8);
    expect_refused(w, ": is a map tensor, and torch has no tensors of that type");
    add_tensor(w, "i", RFS_INT4, 1, dims);
    expect_refused(w, ": is Int4, and torch has no tensors of that type");
    add_tensor(w, "h", RFS_HIFLOAT8, 1, dims);
    expect_refused(w, ": is HiFloat8, and torch has no tensors of that type");
}

/* A file of 70,000 tensors is described within 64 MiB, so a tensor of its document is small. */
#define MANY 20000
#define PER_TENSOR 450 /* bytes */

static size_t memory(void)
{
    const struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

static void test_memory_of_a_document(void **state)
{
    static struct rfs_image_tensor tensors[MANY];
    static char names[MANY][48];
    const struct rfs_type type = {
        .kind = RFS_TENSOR, .dtype = RFS_BFLOAT16, .ndim = 2, .dims = {64, 7168}, .bytes = 917504};
    struct rfs_document document = {0};
    struct rfs_error err = {0};

    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "model.layers.%u.mlp.weight", i);
        tensors[i] = (struct rfs_image_tensor){
            .name = names[i], .name_bytes = strlen(names[i]), .type = &type, .target = i};
    }
    const size_t before = memory();
    assert_int_equal(rfs_document_dict(&document, tensors, MANY, "/source", &err), 0);
    const size_t after = memory();
    if (after > before) /* a sanitizer's is not counted */
        assert_in_range((after - before) / MANY, 1, PER_TENSOR);
    rfs_document_free(&document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ranges, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_dtype, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_beyond_4_gib, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_entries, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stems, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_torch_has_not, set_up, tear_down),
        cmocka_unit_test(test_memory_of_a_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
