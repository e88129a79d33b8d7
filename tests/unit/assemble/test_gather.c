/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of random slices against the tensor element by element, and what is read for them. */
#include "assemble/gather.h"

#include "support.h"
#include "tests/support/allocations.h"
#include "tests/support/valgrind.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct random rng;
static unsigned char scratch[RFS_SCRATCH_ROOM];
static _Thread_local bool no_memory;

EARLY static bool allocation_fails(void)
{
    return no_memory && !spared;
}

static void check_range(const struct world *world, const struct rfs_slice *slice,
                        const unsigned char *bytes, uint64_t begin, uint64_t end)
{
    unsigned char *got = malloc(end - begin ? end - begin : 1);
    assert_non_null(got);
    memset(got, 0x5a, end - begin);
    assert_int_equal(rfs_gather(world->files, slice, begin, end, scratch, got, RFS_GATHER_PROVEN,
                                &(struct rfs_gather_held){0}),
                     0);
    if (memcmp(got, bytes + begin, end - begin) != 0)
        fail_msg("[%llu, %llu) of %llu bytes in %zu blocks", (unsigned long long)begin,
                 (unsigned long long)end, (unsigned long long)slice->bytes, slice->n);
    free(got);
}

static void check_world(uint64_t bytes_of_tensor, int boxes, int ranges)
{
    struct world world;
    world_random(&world, &rng, bytes_of_tensor);
    world_open(&world, &rng);
    for (int i = 0; i < boxes; i++) {
        unsigned char *bytes;
        struct rfs_slice slice = world_box(&world, &rng, &bytes);
        check_range(&world, &slice, bytes, 0, slice.bytes);
        for (int k = 0; k < ranges; k++) {
            const uint64_t begin = random_below(&rng, slice.bytes);
            const uint64_t most = random_below(&rng, 2) ? slice.bytes - begin : 100;
            const uint64_t left = slice.bytes - begin;
            check_range(&world, &slice, bytes, begin,
                        begin + random_in(&rng, 0, most < left ? most : left));
        }
        free(bytes);
        rfs_slice_free(&slice);
    }
    world_close(&world);
}

static void test_small(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++)
        check_world(random_in(&rng, 1, 20000), 4, 12);
}

static void test_large(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++)
        check_world(UINT64_C(4) << 20, 2, 6);
}

/* Two columns of two ranks, in which a window would be almost all gap. */
static void test_far_runs_are_read_alone(void **state)
{
    struct world world = {.ndim = 2, .dims = {64, 16384}, .pieces = {1, 2}, .elem = 2};
    (void)state;
    world_open(&world, &rng);
    struct rfs_slice slice = world_slice(&world, (uint64_t[]){0, 8190}, (uint64_t[]){64, 4}, true);
    unsigned char *bytes = world_bytes(&world, (uint64_t[]){0, 8190}, (uint64_t[]){64, 4});
    check_range(&world, &slice, bytes, 0, slice.bytes);
    struct rfs_files_counters counters;
    rfs_files_count(world.files, &counters);
    assert_int_equal(counters.bytes, slice.bytes);
    free(bytes);
    rfs_slice_free(&slice);
    world_close(&world);
}

/* Short gaps are read over, but nothing before the first wanted byte or after the last. */
static void test_nothing_outside_is_read(void **state)
{
    struct world world = {.ndim = 2, .dims = {1000, 64}, .pieces = {1, 1}, .elem = 1};
    const uint64_t from[] = {0, 8}, size[] = {1000, 8};
    (void)state;
    world_open(&world, &rng);
    struct rfs_slice slice = world_slice(&world, from, size, true);
    unsigned char *bytes = world_bytes(&world, from, size);
    /* The last 3 bytes of row 100, rows 101 and 102, the first 5 of row 103. */
    check_range(&world, &slice, bytes, 805, 829);
    struct rfs_files_counters counters;
    rfs_files_count(world.files, &counters);
    assert_int_equal(counters.bytes, 3 * 64);
    free(bytes);
    rfs_slice_free(&slice);
    world_close(&world);
}

/* Runs that are near each other in groups that are far apart: a window for each group. */
static void test_windows_stop_at_long_gaps(void **state)
{
    struct world world = {.ndim = 3, .dims = {4, 512, 64}, .pieces = {1, 1, 1}, .elem = 1};
    const uint64_t from[] = {0, 0, 8}, size[] = {4, 16, 8};
    (void)state;
    world_open(&world, &rng);
    struct rfs_slice slice = world_slice(&world, from, size, true);
    unsigned char *bytes = world_bytes(&world, from, size);
    check_range(&world, &slice, bytes, 0, slice.bytes);
    struct rfs_files_counters counters;
    rfs_files_count(world.files, &counters);
    assert_int_equal(counters.bytes, 4 * (15 * 64 + 8));
    free(bytes);
    rfs_slice_free(&slice);
    world_close(&world);
}

/*
 * Noting what would be read takes no memory that it would be read to, however far apart its places
 * are.
 */
static void test_noting_has_no_destination(void **state)
{
    const uint64_t run = RFS_SCRATCH, far = (UINT64_C(1) << 63) + run;
    (void)state;
    for (int strided = 0; strided < 2; strided++) {
        struct rfs_block block = {
            .run = run, .dst_end = far + run, .n_loops = 1, .strided = strided == 1};
        block.loop[0] = (struct rfs_loop){.count = 2, .dst_stride = far, .src_stride = 2 * run};
        const struct rfs_slice slice = {.bytes = far + run, .n = 1, .blocks = &block};
        struct rfs_gather_ranges ranges = {0};
        assert_int_equal(rfs_gather_note(&slice, 100, slice.bytes - 10, &ranges), 0);
        assert_int_equal(ranges.n, 2);
        assert_int_equal(ranges.data[0].from, 100);
        assert_int_equal(ranges.data[0].to, run);
        assert_int_equal(ranges.data[1].from, 2 * run);
        assert_int_equal(ranges.data[1].to, 3 * run - 10);
        free(ranges.data);
    }
}

static void test_noting_without_memory(void **state)
{
    struct rfs_block block = {.run = 100, .dst_end = 100};
    const struct rfs_slice slice = {.bytes = 100, .n = 1, .blocks = &block};
    struct rfs_gather_ranges ranges = {0};
    (void)state;
    if (is_under_valgrind()) /* its allocators take the place of ours, which fail when told */
        skip();
    no_memory = true;
    const int rc = rfs_gather_note(&slice, 0, 50, &ranges);
    no_memory = false;
    assert_int_equal(rc, -ENOMEM);
    assert_int_equal(ranges.n, 0);
    assert_int_equal(rfs_gather_note(&slice, 0, 50, &ranges), 0);
    assert_int_equal(ranges.n, 1);
    free(ranges.data);
}

static void test_changed_source(void **state)
{
    struct world world = {.ndim = 2, .dims = {100, 64}, .pieces = {1, 2}, .elem = 1};
    const uint64_t from[] = {0, 0}, size[] = {100, 64};
    unsigned char got[6400];
    (void)state;
    world_open(&world, &rng);
    struct rfs_slice slice = world_slice(&world, from, size, true);
    assert_int_equal(rfs_gather(world.files, &slice, 0, 6400, scratch, got, RFS_GATHER_PROVEN,
                                &(struct rfs_gather_held){0}),
                     0);
    world_spoil(&world, 1);
    assert_int_equal(rfs_gather(world.files, &slice, 0, 6400, scratch, got, RFS_GATHER_PROVEN,
                                &(struct rfs_gather_held){0}),
                     -ESTALE);
    assert_int_equal(rfs_gather(world.files, &slice, 0, 32, scratch, got, RFS_GATHER_PROVEN,
                                &(struct rfs_gather_held){0}),
                     0);
    assert_int_equal(rfs_gather(world.files, &slice, 32, 64, scratch, got, RFS_GATHER_PROVEN,
                                &(struct rfs_gather_held){0}),
                     -ESTALE);
    rfs_slice_free(&slice);
    world_close(&world);
}

static void test_needed(void **state)
{
    struct world world = {.ndim = 2, .dims = {8, 131072}, .pieces = {2, 2}, .elem = 1};
    (void)state;
    world_open(&world, &rng);
    struct rfs_slice rows = world_slice(&world, (uint64_t[]){0, 0}, (uint64_t[]){8, 65536}, true);
    assert_false(rfs_gather_needed(&rows, 0, rows.bytes)); /* whole rows: contiguous */
    struct rfs_slice wide = world_slice(&world, (uint64_t[]){0, 0}, (uint64_t[]){8, 131072}, true);
    assert_false(rfs_gather_needed(&wide, 0, wide.bytes)); /* runs of 64 KiB */
    struct rfs_slice narrow = world_slice(&world, (uint64_t[]){0, 1}, (uint64_t[]){8, 1000}, true);
    assert_true(rfs_gather_needed(&narrow, 0, narrow.bytes));
    assert_false(rfs_gather_needed(&narrow, 0, 1000)); /* within one run */
    rfs_slice_free(&rows);
    rfs_slice_free(&wide);
    rfs_slice_free(&narrow);
    world_close(&world);
}

/* Where byte AT of the first cell is: in which of the extents that its content was divided into. */
static uint64_t place_in_file(const struct world *world, uint64_t at)
{
    const struct rfs_extent *extent = world->extents[0];
    for (; at >= extent->bytes; extent++)
        at -= extent->bytes;
    return extent->offset + at;
}

/* To each distance from the file's bytes modulo a page, for copying to some is done another way. */
static void test_any_distance(void **state)
{
    const uint64_t from[] = {0}, size[] = {700000};
    struct world world = {.ndim = 1, .dims = {700000}, .pieces = {1}, .elem = 1};
    (void)state;
    world_open(&world, &rng);
    struct rfs_slice slice = world_slice(&world, from, size, true);
    unsigned char *bytes = world_bytes(&world, from, size);
    unsigned char *buf = aligned_alloc(4096, 708608);
    assert_non_null(buf);
    const uint64_t source = rfs_gather_source(&slice, 1000);
    assert_int_equal(source, place_in_file(&world, 1000));
    int slow = 0;
    for (size_t at = 0; at < 4096; at += at < 80 ? 1 : 61) {
        unsigned char *dst = buf + (source + at) % 4096;
        slow += rfs_distance_is_slow(dst, source, 699000);
        memset(buf, 0x5a, 708608);
        assert_int_equal(rfs_gather(world.files, &slice, 1000, 700000, scratch, dst,
                                    RFS_GATHER_PROVEN, &(struct rfs_gather_held){0}),
                         0);
        assert_memory_equal(dst, bytes + 1000, 699000);
        assert_int_equal(dst[699000], 0x5a);
    }
    assert_in_range(slow, 31, 31 + 1);
    free(buf);
    free(bytes);
    rfs_slice_free(&slice);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_any_distance),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_far_runs_are_read_alone),
        cmocka_unit_test(test_nothing_outside_is_read),
        cmocka_unit_test(test_windows_stop_at_long_gaps),
        cmocka_unit_test(test_noting_has_no_destination),
        cmocka_unit_test(test_noting_without_memory),
        cmocka_unit_test(test_changed_source),
        cmocka_unit_test(test_needed),
    };
    rng = random_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
