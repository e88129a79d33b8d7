/* SPDX-License-Identifier: Apache-2.0 */
/* Byte ranges and unions of `reshard explain`, against slow and plain reckonings. */
#include "survey/explain/explained.h"
#include "tests/support/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILE_BYTES 4096

/* Marks each byte of the file that the block takes, one by one. */
static void mark_block(const struct rfs_block *block, unsigned char *marks)
{
    uint64_t at[RFS_MAX_DIMS] = {0};

    for (bool more = true; more;) {
        uint64_t from = block->src;
        for (uint32_t k = 0; k < block->n_loops; k++)
            from += at[k] * block->loop[k].src_stride;
        for (uint64_t i = 0; i < block->run; i++) {
            uint64_t in = from + i;
            uint64_t offset = block->content.offset + in;
            for (uint32_t e = 0; e < block->content.n; e++) {
                if (in < block->content.extents[e].bytes) {
                    offset = block->content.extents[e].offset + in;
                    break;
                }
                in -= block->content.extents[e].bytes;
            }
            assert_true(offset < FILE_BYTES);
            marks[offset] = 1;
        }
        more = false;
        for (uint32_t k = block->n_loops; !more && k-- > 0;) {
            more = ++at[k] < block->loop[k].count;
            at[k] = more ? at[k] : 0;
        }
    }
}

static void mark_range(const struct rfs_explained_range *range, unsigned char *marks)
{
    uint64_t at[RFS_MAX_DIMS] = {0};

    for (bool more = true; more;) {
        uint64_t from = range->offset;
        for (uint32_t k = 0; k < range->n_loops; k++)
            from += at[k] * range->loop[k].stride;
        for (uint64_t i = 0; i < range->run; i++) {
            assert_true(from + i < FILE_BYTES);
            marks[from + i]++;
        }
        more = false;
        for (uint32_t k = range->n_loops; !more && k-- > 0;) {
            more = ++at[k] < range->loop[k].count;
            at[k] = more ? at[k] : 0;
        }
    }
}

/*
 * A box of a tensor of up to three axes, in a content that lies in up to four extents with gaps
 * between.
 */
static void test_ranges(void **state)
{
    uint64_t random = test_seed();

    (void)state;
    for (int round = 0; round < 3000; round++) {
        const uint32_t ndim = test_below(&random, 4);
        uint64_t dims[3], len[3], stride[3], dst[3], step = 1 + test_below(&random, 3);
        const uint64_t item = step;
        struct rfs_extent extents[4];
        struct rfs_block block = {.content = {.offset = test_below(&random, 100)}};
        for (uint32_t i = ndim; i-- > 0; step *= dims[i]) {
            const uint32_t begin = test_below(&random, 4);
            len[i] = 1 + test_below(&random, 6);
            dims[i] = begin + len[i] + test_below(&random, 2);
            stride[i] = step;
            block.src += begin * step;
        }
        uint64_t dst_step = item;
        for (uint32_t i = ndim; i-- > 0; dst_step *= len[i])
            dst[i] = dst_step;
        rfs_slice_block_box(&block, ndim, len, item, dst, stride);
        block.content.n = test_below(&random, 5);
        block.content.extents = extents;
        uint64_t left = step, place = 50;
        for (uint32_t e = 0; e < block.content.n; e++) {
            const bool last = e + 1 == block.content.n;
            const uint64_t bytes = last ? left : test_below(&random, (uint32_t)left + 1);
            extents[e] = (struct rfs_extent){place, bytes};
            left -= bytes;
            place += bytes + 1 + test_below(&random, 40);
        }
        unsigned char want[FILE_BYTES] = {0}, got[FILE_BYTES] = {0};
        struct rfs_explained_ranges ranges = {0};
        mark_block(&block, want);
        assert_true(rfs_explained_ranges_add(&block, &ranges));
        uint64_t bytes = 0;
        for (size_t i = 0; i < ranges.n; i++)
            mark_range(&ranges.data[i], got);
        for (size_t i = 0; i < FILE_BYTES; i++) {
            assert_int_equal(got[i], want[i]); /* each once */
            bytes += want[i];
        }
        assert_int_equal(rfs_explained_block_bytes(&block), bytes);
        if (block.content.n == 0)
            assert_int_equal(ranges.n, 1);
        free(ranges.data);
    }
}

/* What leaves no gap is one run. */
static void test_ranges_fold(void **state)
{
    const uint64_t len[] = {4, 8}, src[] = {32, 4}, dst[] = {64, 4};
    struct rfs_block block = {.content = {.offset = 100}, .src = 64};
    struct rfs_explained_ranges ranges = {0};

    (void)state;
    rfs_slice_block_box(&block, 2, len, 4, dst, src);
    assert_int_equal(block.n_loops, 1);
    assert_true(rfs_explained_ranges_add(&block, &ranges));
    assert_int_equal(ranges.n, 1);
    assert_int_equal(ranges.data[0].offset, 164);
    assert_int_equal(ranges.data[0].run, 128);
    assert_int_equal(ranges.data[0].n_loops, 0);
    free(ranges.data);
}

/* A transposed tensor's runs have the order of its elements; sorted, they are one. */
static void test_ranges_order(void **state)
{
    const uint64_t len[] = {9, 2}, src[] = {4, 36}, dst[] = {8, 4};
    struct rfs_block block = {.content = {.offset = 100}};
    struct rfs_explained_ranges ranges = {0};

    (void)state;
    rfs_slice_block_box(&block, 2, len, 4, dst, src);
    assert_true(rfs_explained_ranges_add(&block, &ranges));
    assert_int_equal(ranges.n, 1);
    struct rfs_explained_range *range = &ranges.data[0];
    assert_int_equal(range->run, 4);
    assert_int_equal(range->n_loops, 2);
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_equal(range->loop[k].count, len[k]);
        assert_int_equal(range->loop[k].stride, src[k]);
    }
    rfs_explained_range_sort(range);
    assert_int_equal(range->offset, 100);
    assert_int_equal(range->run, 72);
    assert_int_equal(range->n_loops, 0);
    free(ranges.data);
}

static void test_union(void **state)
{
    uint64_t random = test_seed();

    (void)state;
    for (int round = 0; round < 2000; round++) {
        const uint32_t ndim = test_below(&random, 4);
        const uint32_t n = test_below(&random, 7);
        unsigned char marks[8][8][8] = {{{0}}};
        struct rfs_explained_boxes boxes = {0};
        uint64_t want = 0, got = 99;
        for (uint32_t i = 0; i < n; i++) {
            struct rfs_box box = {.len = {0}};
            uint64_t at[3] = {0}, len[3] = {1, 1, 1};
            for (uint32_t k = 0; k < ndim; k++) {
                box.at[k] = at[k] = test_below(&random, 8);
                box.len[k] = len[k] = test_below(&random, (uint32_t)(9 - at[k]));
            }
            for (uint64_t x = at[0]; x < at[0] + len[0]; x++)
                for (uint64_t y = at[1]; y < at[1] + len[1]; y++)
                    for (uint64_t z = at[2]; z < at[2] + len[2]; z++)
                        marks[x][y][z] = 1;
            assert_true(RFS_PUSH(&boxes, box));
        }
        for (size_t i = 0; i < sizeof marks; i++)
            want += (&marks[0][0][0])[i];
        assert_true(rfs_explained_boxes_volume(&boxes, ndim, &got));
        assert_int_equal(got, want);
        free(boxes.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_ranges_fold),
        cmocka_unit_test(test_ranges_order),
        cmocka_unit_test(test_union),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
