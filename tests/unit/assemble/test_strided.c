/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of tensors whose elements lie in any order, against copying them one by one. */
#include "assemble/gather.h"

#include "base/options.h"
#include "support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FILE_BYTES (UINT64_C(3) << 20)
enum { AXES = 5 };

static struct random rng;
static unsigned char scratch[RFS_SCRATCH_ROOM];

/* One file of random bytes, in which all tensors lie. */
static struct {
    char root[64];
    unsigned char *bytes;
    struct rfs_catalog *catalog;
} file;

static void make_path(char *path, size_t cap, const char *name)
{
    snprintf(path, cap, "%s%s", file.root, name);
}

static int set_up(void **state)
{
    char path[128];
    struct rfs_error err = {0};

    (void)state;
    strcpy(file.root, "/tmp/rfs-strided-XXXXXX");
    assert_non_null(mkdtemp(file.root));
    make_path(path, sizeof path, "/rank_0");
    assert_int_equal(mkdir(path, 0700), 0);
    file.bytes = malloc(FILE_BYTES);
    assert_non_null(file.bytes);
    for (uint64_t i = 0; i < FILE_BYTES; i++)
        file.bytes[i] = (unsigned char)random_next(&rng);
    make_path(path, sizeof path, "/rank_0/x.ckpt");
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(file.bytes, 1, FILE_BYTES, out), FILE_BYTES);
    assert_int_equal(fclose(out), 0);
    const struct rfs_source_spec spec = {.path = file.root, .options = &rfs_options_defaults};
    if (rfs_catalog_open(&spec, NULL, NULL, &file.catalog, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int tear_down(void **state)
{
    char path[128];

    (void)state;
    rfs_catalog_close(file.catalog);
    free(file.bytes);
    make_path(path, sizeof path, "/rank_0/x.ckpt");
    unlink(path);
    make_path(path, sizeof path, "/rank_0");
    rmdir(path);
    rmdir(file.root);
    return 0;
}

/* A tensor of some shape; strides and offset in bytes. */
struct tensor {
    uint32_t ndim;
    uint64_t item, offset;
    uint64_t dims[AXES], stride[AXES];
};

static void shuffle(uint32_t n, uint32_t *order)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t k = (uint32_t)random_below(&rng, i);
        const uint32_t other = order[k];
        order[k] = order[i - 1];
        order[i - 1] = other;
    }
}

/* Axes in any order in memory, with gaps, steps of any length, or none; all of it in the file. */
static void make_strides(struct tensor *tensor)
{
    uint32_t order[AXES];
    uint64_t step = tensor->item;
    uint64_t reach = tensor->item;

    shuffle(tensor->ndim, order);
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        const uint32_t axis = order[i];
        const uint64_t gap = random_below(&rng, 3) ? 0 : random_below(&rng, 40) * tensor->item;
        const unsigned kind = (unsigned)random_below(&rng, 12);
        tensor->stride[axis] = kind == 0   ? 0
                               : kind == 1 ? random_below(&rng, 50) * tensor->item
                                           : step + gap;
        const uint64_t more = (tensor->dims[axis] - 1) * tensor->stride[axis];
        if (reach + more > FILE_BYTES)
            tensor->stride[axis] = 0;
        else
            reach += more;
        step = reach;
    }
    tensor->offset = random_below(&rng, FILE_BYTES - reach + 1);
}

static void make_tensor(struct tensor *tensor, uint64_t elements)
{
    static const uint64_t items[] = {1, 2, 4, 4, 8, 16};

    tensor->item = items[random_below(&rng, sizeof items / sizeof *items)];
    tensor->ndim = (uint32_t)random_below(&rng, AXES + 1);
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        tensor->dims[i] =
            random_in(&rng, 1, elements < 40 || random_below(&rng, 3) == 0 ? elements : 40);
        elements /= tensor->dims[i];
    }
    make_strides(tensor);
}

/* A box of the tensor as a block that begins at DST of a slice with these strides. */
static void make_block(const struct tensor *tensor, const uint64_t *from, const uint64_t *size,
                       const uint64_t *dst_stride, uint64_t dst, struct rfs_block *block)
{
    *block = (struct rfs_block){.file = rfs_catalog_file(file.catalog, 0),
                                .content = {.offset = tensor->offset},
                                .dst = dst,
                                .strided = true};
    for (uint32_t i = 0; i < tensor->ndim; i++)
        block->src += from[i] * tensor->stride[i];
    rfs_slice_block_box(block, tensor->ndim, size, tensor->item, dst_stride, tensor->stride);
}

/* The same box element by element. */
static void copy_box(const struct tensor *tensor, const uint64_t *from, const uint64_t *size,
                     const uint64_t *dst_stride, unsigned char *dst)
{
    uint64_t at[AXES] = {0};
    uint64_t n = 1;

    for (uint32_t i = 0; i < tensor->ndim; i++)
        n *= size[i];
    for (uint64_t k = 0; k < n; k++) {
        uint64_t source = tensor->offset;
        uint64_t place = 0;
        for (uint32_t i = 0; i < tensor->ndim; i++) {
            source += (from[i] + at[i]) * tensor->stride[i];
            place += at[i] * dst_stride[i];
        }
        memcpy(dst + place, file.bytes + source, (size_t)tensor->item);
        for (uint32_t i = tensor->ndim; i-- > 0 && ++at[i] == size[i];)
            at[i] = 0;
    }
}

static uint64_t row_major(uint32_t ndim, uint64_t item, const uint64_t *size, uint64_t *stride)
{
    for (uint32_t i = ndim; i-- > 0; item *= size[i])
        stride[i] = item;
    return item;
}

static void expect_range(const struct rfs_slice *slice, const unsigned char *want, uint64_t begin,
                         uint64_t end)
{
    unsigned char *got = malloc((size_t)(end - begin) + 1);

    assert_non_null(got);
    memset(got, 0x5a, (size_t)(end - begin) + 1);
    assert_int_equal(rfs_gather(rfs_catalog_files(file.catalog), slice, begin, end, scratch, got,
                                RFS_GATHER_PROVEN, &(struct rfs_gather_held){0}),
                     0);
    if (memcmp(got, want + begin, (size_t)(end - begin)) != 0 || got[end - begin] != 0x5a)
        fail_msg("[%llu, %llu) of %llu bytes in %zu blocks", (unsigned long long)begin,
                 (unsigned long long)end, (unsigned long long)slice->bytes, slice->n);
    free(got);
}

static void expect_ranges(const struct rfs_slice *slice, const unsigned char *want, unsigned n)
{
    expect_range(slice, want, 0, slice->bytes);
    while (n-- > 0) {
        const uint64_t begin = random_below(&rng, slice->bytes + 1);
        const uint64_t left = slice->bytes - begin;
        const uint64_t most = random_below(&rng, 2) && left > 100 ? 100 : left;
        expect_range(slice, want, begin, begin + random_in(&rng, 0, most));
    }
}

/* A random box of a random tensor. */
static void check_box(uint64_t elements, unsigned ranges)
{
    struct tensor tensor = {0};
    uint64_t from[AXES];
    uint64_t size[AXES];
    uint64_t stride[AXES];
    struct rfs_block block;

    make_tensor(&tensor, elements);
    for (uint32_t i = 0; i < tensor.ndim; i++) {
        const bool all = random_below(&rng, 2);
        from[i] = all ? 0 : random_below(&rng, tensor.dims[i]);
        size[i] = all ? tensor.dims[i] : random_in(&rng, 1, tensor.dims[i] - from[i]);
    }
    const uint64_t bytes = row_major(tensor.ndim, tensor.item, size, stride);
    unsigned char *want = malloc((size_t)bytes);
    assert_non_null(want);
    copy_box(&tensor, from, size, stride, want);
    make_block(&tensor, from, size, stride, 0, &block);
    assert_int_equal(block.dst_end, bytes);
    struct rfs_slice slice = {.bytes = bytes, .n = 1, .blocks = &block};
    expect_ranges(&slice, want, ranges);
    free(want);
}

static void test_boxes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3000; i++)
        check_box(random_in(&rng, 1, 3000), 5);
}

static void test_large_boxes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 60; i++)
        check_box(random_in(&rng, 20000, 180000), 4);
}

/* Two tensors of one shape side by side along an axis, each with strides of its own. */
static void check_pair(uint64_t elements)
{
    struct tensor tensor = {0};
    uint64_t from[AXES] = {0};
    uint64_t stride[AXES];
    uint64_t both[AXES];
    struct rfs_block blocks[2];

    do
        make_tensor(&tensor, elements);
    while (tensor.ndim == 0);
    const uint32_t axis = (uint32_t)random_below(&rng, tensor.ndim);
    memcpy(both, tensor.dims, sizeof both);
    both[axis] *= 2;
    const uint64_t bytes = row_major(tensor.ndim, tensor.item, both, stride);
    unsigned char *want = malloc((size_t)bytes);
    assert_non_null(want);
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t dst = i * tensor.dims[axis] * stride[axis];
        make_strides(&tensor);
        make_block(&tensor, from, tensor.dims, stride, dst, &blocks[i]);
        copy_box(&tensor, from, tensor.dims, stride, want + dst);
    }
    struct rfs_slice slice = {.bytes = bytes, .n = 2, .blocks = blocks};
    expect_ranges(&slice, want, 6);
    free(want);
}

static void test_pairs(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        check_pair(random_in(&rng, 1, 2000));
}

/* A block of all of a value, as its type says, with and without strides. */
static void test_whole(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 500; i++) {
        struct tensor tensor = {0};
        const uint64_t from[AXES] = {0};
        uint64_t stride[AXES];
        make_tensor(&tensor, 500);
        struct rfs_type type = {.ndim = (uint8_t)tensor.ndim, .kind = RFS_TENSOR};
        type.dtype = tensor.item == 1   ? RFS_INT8
                     : tensor.item == 2 ? RFS_INT16
                     : tensor.item == 4 ? RFS_FLOAT32
                     : tensor.item == 8 ? RFS_INT64
                                        : RFS_COMPLEX128;
        memcpy(type.dims, tensor.dims, sizeof tensor.dims);
        type.bytes = row_major(tensor.ndim, tensor.item, tensor.dims, stride);
        if (random_below(&rng, 2) && tensor.offset + type.bytes <= FILE_BYTES)
            memcpy(tensor.stride, stride, sizeof stride); /* row-major after all */
        struct rfs_block block = {.file = rfs_catalog_file(file.catalog, 0),
                                  .content = {.offset = tensor.offset}};
        unsigned char *want = malloc((size_t)type.bytes);
        assert_non_null(want);
        copy_box(&tensor, from, tensor.dims, stride, want);
        const bool plain = memcmp(tensor.stride, stride, tensor.ndim * sizeof *stride) == 0;
        rfs_slice_block_whole(&block, &type, plain ? NULL : tensor.stride);
        assert_int_equal(block.dst_end, type.bytes);
        struct rfs_slice slice = {.bytes = type.bytes, .n = 1, .blocks = &block};
        expect_ranges(&slice, want, 4);
        free(want);
    }
}

/* A transposed matrix is read by windows, not element by element. */
static void test_windows(void **state)
{
    const struct tensor tensor = {2, 4, 64, {300, 500}, {4, 1200}};
    const uint64_t from[AXES] = {0};
    uint64_t stride[AXES];
    struct rfs_block block;
    struct rfs_files_counters before;
    struct rfs_files_counters after;

    (void)state;
    const uint64_t bytes = row_major(2, 4, tensor.dims, stride);
    unsigned char *want = malloc((size_t)bytes);
    assert_non_null(want);
    copy_box(&tensor, from, tensor.dims, stride, want);
    make_block(&tensor, from, tensor.dims, stride, 0, &block);
    struct rfs_slice slice = {.bytes = bytes, .n = 1, .blocks = &block};
    rfs_files_count(rfs_catalog_files(file.catalog), &before);
    expect_range(&slice, want, 0, bytes);
    rfs_files_count(rfs_catalog_files(file.catalog), &after);
    assert_int_equal(after.bytes - before.bytes, bytes);
    assert_true(after.reads - before.reads <= bytes / (RFS_SCRATCH / 2));
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boxes),   cmocka_unit_test(test_large_boxes),
        cmocka_unit_test(test_pairs),   cmocka_unit_test(test_whole),
        cmocka_unit_test(test_windows),
    };
    rng = random_start();
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
