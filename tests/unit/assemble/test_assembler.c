/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of pieces: right bytes under any budget, made once, never stale, never over the budget.
 */
#include "assemble/assembler.h"

#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define IOV_MOST 6

static struct random rng;
static const struct rfs_windows all = {.kept = {0, UINT64_MAX}, .lent = {0, UINT64_MAX}};

/* Two ranks with a half of each row, joined: a slice of 3.5 MiB that is gathered all over. */
static void open_halves(struct world *world, struct rfs_slice *slice, unsigned char **bytes)
{
    const uint64_t from[] = {0, 0}, size[] = {3584, 512};
    *world = (struct world){.ndim = 2, .dims = {3584, 512}, .pieces = {1, 2}, .elem = 2};
    world_open(world, &rng);
    *slice = world_slice(world, from, size, true);
    *bytes = world_bytes(world, from, size);
}

static void close_halves(struct world *world, struct rfs_slice *slice, unsigned char *bytes)
{
    free(bytes);
    rfs_slice_free(slice);
    world_close(world);
}

static uint64_t source_bytes(const struct world *world)
{
    struct rfs_files_counters counters;
    rfs_files_count(world->files, &counters);
    return counters.bytes;
}

/* 0 when the range reads as expected; prints and returns 1 when not. For any thread. */
static int read_range(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                      const unsigned char *bytes, struct random *random, uint64_t begin,
                      size_t size)
{
    const bool sequential = random_below(random, 2);
    unsigned char *buf = calloc(1, size + RFS_DISTANCE_STEP + 1), *got = buf;
    struct rfs_pins pins = {0};
    int rc;
    if (random_below(random, 2)) {
        struct iovec iov[IOV_MOST];
        const int most = (int)random_in(random, 1, IOV_MOST);
        struct rfs_reply reply = {.at = buf, .iov = iov, .iov_max = most, .pins = &pins};
        rc = rfs_assemble_borrow(assembler, slice, begin, size, sequential, &reply);
        const int count = reply.iov_count;
        got = malloc(size + 1);
        size_t n = 0;
        for (int i = 0; rc == 0 && i < count; i++) {
            if (iov[i].iov_len <= size - n)
                memcpy(got + n, iov[i].iov_base, iov[i].iov_len);
            n += iov[i].iov_len;
        }
        if (rc == 0 && (n != size || count > most))
            rc = -ERANGE;
    } else {
        rc = rfs_assemble(assembler, slice, begin, size, sequential, buf);
    }
    const int bad = rc != 0 || memcmp(got, bytes + begin, size) != 0;
    if (bad)
        fprintf(stderr, "%zu bytes at %llu of %llu: %d\n", size, (unsigned long long)begin,
                (unsigned long long)slice->bytes, rc);
    rfs_assemble_unpin(assembler, &pins);
    if (got != buf)
        free(got);
    free(buf);
    return bad;
}

static int read_somewhere(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                          const unsigned char *bytes, struct random *random)
{
    const uint64_t begin = random_below(random, slice->bytes);
    const uint64_t left = slice->bytes - begin;
    const uint64_t most = random_below(random, 2) ? left : left < 5000 ? left : 5000;
    return read_range(assembler, slice, bytes, random, begin, (size_t)random_in(random, 0, most));
}

static uint64_t cached(struct rfs_assembler *assembler)
{
    struct rfs_assembler_counters counters;
    rfs_assembler_count(assembler, &counters);
    return counters.cache.bytes;
}

static const uint64_t budgets[] = {0,           1000,    MIB,           MIB + 4096,
                                   5 * MIB / 2, 9 * MIB, 12 * MIB + 99, 64 * MIB};

static void test_random_slices(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct world world;
        unsigned char *bytes[3];
        struct rfs_slice slices[3];
        world_random(&world, &rng, i % 3 == 0 ? 4 * MIB : 100000);
        world_open(&world, &rng);
        const uint64_t budget = budgets[random_below(&rng, sizeof budgets / sizeof budgets[0])];
        struct rfs_assembler *assembler = rfs_assembler_new(world.catalog, budget, NULL);
        assert_non_null(assembler);
        for (int k = 0; k < 3; k++)
            slices[k] = world_box(&world, &rng, &bytes[k]);
        for (int k = 0; k < 40; k++) {
            const uint64_t which = random_below(&rng, 3);
            assert_int_equal(read_somewhere(assembler, &slices[which], bytes[which], &rng), 0);
            assert_true(cached(assembler) <= budget);
        }
        for (int k = 0; k < 3; k++) {
            assert_int_equal(
                read_range(assembler, &slices[k], bytes[k], &rng, 0, (size_t)slices[k].bytes), 0);
            free(bytes[k]);
            rfs_slice_free(&slices[k]);
        }
        rfs_assembler_free(assembler);
        world_close(&world);
    }
}

struct party {
    struct rfs_assembler *assembler;
    const struct rfs_slice *slices;
    unsigned char **bytes;
    int n_slices;
    int reads; /* 0: each slice once, whole */
    uint64_t budget;
    atomic_uint_fast64_t seed;
    atomic_int bad;
};

static void *take_part(void *arg)
{
    struct party *party = arg;
    struct random random = {atomic_fetch_add(&party->seed, 1)};
    for (int i = 0; i < party->n_slices && party->reads == 0; i++)
        party->bad += read_range(party->assembler, &party->slices[i], party->bytes[i], &random, 0,
                                 (size_t)party->slices[i].bytes);
    for (int i = 0; i < party->reads; i++) {
        const uint64_t which = random_below(&random, (uint64_t)party->n_slices);
        party->bad +=
            read_somewhere(party->assembler, &party->slices[which], party->bytes[which], &random);
        party->bad += cached(party->assembler) > party->budget;
    }
    return NULL;
}

static void hold(struct party *party, struct random *random)
{
    pthread_t threads[4];
    atomic_store(&party->seed, random_next(random));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_part, party), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(party->bad, 0);
}

static void test_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        struct world world;
        unsigned char *bytes[2];
        struct rfs_slice slices[2];
        open_halves(&world, &slices[0], &bytes[0]);
        slices[1] = world_box(&world, &rng, &bytes[1]);
        struct rfs_pool *pool = rfs_pool_new(2);
        struct rfs_assembler *assembler = rfs_assembler_new(world.catalog, budgets[i], pool);
        assert_non_null(assembler);
        struct party party = {.assembler = assembler,
                              .slices = slices,
                              .bytes = bytes,
                              .n_slices = 2,
                              .reads = 25,
                              .budget = budgets[i]};
        struct rfs_slice ahead =
            world_slice(&world, (uint64_t[]){0, 0}, (uint64_t[]){3584, 512}, true);
        ahead.id[0] = slices[0].id[0];
        ahead.id[1] = slices[0].id[1];
        rfs_assemble_ahead(assembler, &ahead, &(struct rfs_slice){0}, &all);
        assert_null(ahead.blocks);
        hold(&party, &rng);
        rfs_assembler_free(assembler);
        rfs_pool_free(pool);
        free(bytes[1]);
        rfs_slice_free(&slices[1]);
        close_halves(&world, &slices[0], bytes[0]);
    }
}

static void test_pieces_are_made_once(void **state)
{
    struct world world;
    struct rfs_slice slice;
    unsigned char *bytes;
    (void)state;
    open_halves(&world, &slice, &bytes);
    for (int i = 0; i < 5; i++) {
        struct rfs_assembler *assembler = rfs_assembler_new(world.catalog, 64 * MIB, NULL);
        struct party party = {
            .assembler = assembler, .slices = &slice, .bytes = &bytes, .n_slices = 1};
        const uint64_t before = source_bytes(&world);
        hold(&party, &rng);
        assert_int_equal(source_bytes(&world) - before, slice.bytes);
        struct rfs_assembler_counters counters;
        rfs_assembler_count(assembler, &counters);
        assert_int_equal(counters.cache.misses, 4); /* 3.5 MiB in pieces */
        assert_int_equal(counters.cache.hits, 3 * 4);
        assert_int_equal(counters.cache.evictions, 0);
        rfs_assembler_free(assembler);
    }
    close_halves(&world, &slice, bytes);
}

static void test_small_reads_leave_no_piece(void **state)
{
    struct world world;
    struct rfs_slice slice;
    unsigned char *bytes, got[4096];
    (void)state;
    open_halves(&world, &slice, &bytes);
    struct rfs_assembler *assembler = rfs_assembler_new(world.catalog, 64 * MIB, NULL);
    assert_int_equal(rfs_assemble(assembler, &slice, 5000, 4096, false, got), 0);
    assert_memory_equal(got, bytes + 5000, 4096);
    assert_int_equal(cached(assembler), 0);
    assert_true(source_bytes(&world) <= 4096);
    assert_int_equal(rfs_assemble(assembler, &slice, 5000, 4096, true, got), 0);
    assert_memory_equal(got, bytes + 5000, 4096);
    assert_true(cached(assembler) >= MIB);
    const uint64_t before = source_bytes(&world);
    assert_int_equal(rfs_assemble(assembler, &slice, 9000, 4096, false, got), 0);
    assert_memory_equal(got, bytes + 9000, 4096);
    assert_int_equal(source_bytes(&world), before); /* from the piece that is there now */
    assert_int_equal(rfs_assemble(assembler, &slice, slice.bytes - 1, 2, false, got), -EINVAL);
    rfs_assembler_free(assembler);
    close_halves(&world, &slice, bytes);
}

static void test_pinned_pieces_stay(void **state)
{
    const uint64_t budget = 5 * MIB / 2; /* two pieces */
    struct world world;
    struct rfs_slice slice;
    unsigned char *bytes;
    (void)state;
    open_halves(&world, &slice, &bytes);
    struct rfs_assembler *assembler = rfs_assembler_new(world.catalog, budget, NULL);
    unsigned char *buf = malloc(4 * MIB + RFS_DISTANCE_STEP);
    struct rfs_pins pins = {0};
    struct iovec iov[3];
    struct rfs_reply reply = {.at = buf, .iov = iov, .iov_max = 3, .pins = &pins};
    assert_non_null(buf);
    assert_int_equal(rfs_assemble_borrow(assembler, &slice, 0, 2 * MIB, true, &reply), 0);
    assert_int_equal(reply.iov_count, 2);
    assert_int_equal(pins.n, 2);
    /* No room for the others, and nothing to evict: they are read, and the lent bytes stay. */
    assert_int_equal(
        rfs_assemble(assembler, &slice, 2 * MIB, slice.bytes - 2 * MIB, true, buf + 2 * MIB), 0);
    assert_memory_equal(buf + 2 * MIB, bytes + 2 * MIB, slice.bytes - 2 * MIB);
    assert_true(cached(assembler) <= budget);
    assert_memory_equal(iov[0].iov_base, bytes, MIB);
    assert_memory_equal(iov[1].iov_base, bytes + MIB, MIB);
    rfs_assemble_unpin(assembler, &pins);
    /* Now there is. */
    assert_int_equal(rfs_assemble(assembler, &slice, 2 * MIB, MIB, true, buf), 0);
    assert_memory_equal(buf, bytes + 2 * MIB, MIB);
    struct rfs_assembler_counters counters;
    rfs_assembler_count(assembler, &counters);
    assert_int_equal(counters.cache.evictions, 1);
    assert_true(counters.cache.bytes <= budget);
    free(buf);
    rfs_assembler_free(assembler);
    close_halves(&world, &slice, bytes);
}

static void test_changed_source_after_caching(void **state)
{
    struct world world;
    struct rfs_slice slice;
    unsigned char *bytes;
    (void)state;
    open_halves(&world, &slice, &bytes);
    struct rfs_assembler *assembler = rfs_assembler_new(world.catalog, 64 * MIB, NULL);
    unsigned char *buf = malloc(slice.bytes);
    assert_non_null(buf);
    assert_int_equal(rfs_assemble(assembler, &slice, 0, slice.bytes, true, buf), 0);
    assert_memory_equal(buf, bytes, slice.bytes);
    const uint64_t full = cached(assembler);
    world_spoil(&world, 1);
    assert_int_equal(rfs_assemble(assembler, &slice, 0, 100, false, buf), -ESTALE);
    assert_int_equal(rfs_assemble(assembler, &slice, MIB, MIB, true, buf), -ESTALE);
    assert_int_equal(rfs_assemble(assembler, &slice, MIB, MIB, true, buf), -ESTALE);
    assert_true(cached(assembler) <= full);
    rfs_assembler_free(assembler);
    /* Nothing that fails is kept. */
    assembler = rfs_assembler_new(world.catalog, 64 * MIB, NULL);
    assert_int_equal(rfs_assemble(assembler, &slice, 0, slice.bytes, true, buf), -ESTALE);
    assert_true(cached(assembler) <= MIB); /* at most the memory of the piece, warm */
    free(buf);
    rfs_assembler_free(assembler);
    close_halves(&world, &slice, bytes);
}

/* The same as shared by the assembler, which takes it over. */
static struct rfs_slice copy_slice(const struct rfs_slice *slice)
{
    struct rfs_slice copy = *slice;
    copy.blocks = malloc(slice->n * sizeof *copy.blocks);
    assert_non_null(copy.blocks);
    memcpy(copy.blocks, slice->blocks, slice->n * sizeof *copy.blocks);
    return copy;
}

/*
 * What a request costs in comparisons of identities, however many pieces it touches and whoever
 * made them.
 */
static void test_files_are_compared_once_a_request(void **state)
{
    struct rfs_files_counters before, after;
    struct world world;
    struct rfs_slice slice;
    unsigned char *bytes;
    (void)state;
    open_halves(&world, &slice, &bytes);
    struct rfs_pool *pool = rfs_pool_new(1);
    struct rfs_assembler *assembler = rfs_assembler_new(world.catalog, 64 * MIB, pool);
    struct rfs_slice copy = copy_slice(&slice);
    rfs_assemble_ahead(assembler, &copy, &(struct rfs_slice){0},
                       &(struct rfs_windows){.kept = {MIB, 3 * MIB}});
    rfs_pool_free(pool);
    rfs_files_count(world.files, &before);
    /* Two pieces that were made ahead, one that is made now and part of one that is, too. */
    assert_int_equal(read_range(assembler, &slice, bytes, &rng, 100, slice.bytes - 200), 0);
    rfs_files_count(world.files, &after);
    assert_int_equal(after.checks - before.checks, 2); /* source files */
    assert_int_equal(read_range(assembler, &slice, bytes, &rng, 5, 2 * MIB), 0);
    rfs_files_count(world.files, &before);
    assert_int_equal(before.checks - after.checks, 2);
    rfs_assembler_free(assembler);
    close_halves(&world, &slice, bytes);
}

/* A piece may be made ahead of a source that has changed: nobody gets it. */
static void test_changed_source_before_read_ahead(void **state)
{
    struct world world;
    struct rfs_slice slice;
    struct iovec iov[8];
    struct rfs_pins pins = {0};
    unsigned char *bytes;
    (void)state;
    open_halves(&world, &slice, &bytes);
    unsigned char *buf = malloc(slice.bytes + RFS_DISTANCE_STEP);
    struct rfs_reply reply = {.at = buf, .iov = iov, .iov_max = 8, .pins = &pins};
    struct rfs_pool *pool = rfs_pool_new(1);
    struct rfs_assembler *assembler = rfs_assembler_new(world.catalog, 64 * MIB, pool);
    struct rfs_slice copy = copy_slice(&slice);
    assert_non_null(buf);
    assert_int_equal(rfs_assemble(assembler, &slice, 0, 4096, false, buf), 0); /* both are open */
    world_spoil(&world, 1);
    rfs_assemble_ahead(assembler, &copy, &(struct rfs_slice){0},
                       &(struct rfs_windows){.kept = {MIB, 2 * MIB}});
    rfs_pool_free(pool);
    assert_int_equal(rfs_assemble_borrow(assembler, &slice, MIB, MIB, true, &reply), -ESTALE);
    rfs_assemble_unpin(assembler, &pins);
    assert_int_equal(rfs_assemble(assembler, &slice, MIB, MIB, true, buf), -ESTALE);
    rfs_assembler_free(assembler);
    free(buf);
    close_halves(&world, &slice, bytes);
}

static void test_read_ahead(void **state)
{
    struct world world;
    struct rfs_slice slice;
    unsigned char *bytes;
    (void)state;
    open_halves(&world, &slice, &bytes);
    struct rfs_pool *pool = rfs_pool_new(1);
    struct rfs_assembler *assembler = world_fast_assembler(&world, 64 * MIB, pool);
    struct rfs_slice copy = copy_slice(&slice);
    rfs_assemble_ahead(assembler, &copy, &(struct rfs_slice){0}, &all);
    rfs_pool_free(pool); /* runs what is queued */
    struct rfs_assembler_counters counters;
    rfs_assembler_count(assembler, &counters);
    assert_int_equal(counters.ahead, 4);
    const uint64_t before = source_bytes(&world);
    assert_int_equal(before, slice.bytes);
    assert_int_equal(read_range(assembler, &slice, bytes, &rng, 0, slice.bytes), 0);
    assert_int_equal(source_bytes(&world), before);
    rfs_assembler_count(assembler, &counters);
    assert_int_equal(counters.cache.misses, 0);
    rfs_assembler_free(assembler);
    close_halves(&world, &slice, bytes);
}

/* A contiguous slice is read ahead in pieces that are lent and then forgotten. */
static void test_read_ahead_of_what_is_contiguous(void **state)
{
    const uint64_t from[] = {0}, size[] = {4 * MIB + 999};
    struct world world = {.ndim = 1, .dims = {4 * MIB + 999}, .pieces = {1}, .elem = 1};
    struct rfs_assembler_counters counters;
    (void)state;
    world_open(&world, &rng);
    struct rfs_slice slice = world_slice(&world, from, size, true);
    struct rfs_slice copy = world_slice(&world, from, size, true);
    copy.id[0] = slice.id[0];
    copy.id[1] = slice.id[1];
    unsigned char *bytes = world_bytes(&world, from, size);
    unsigned char *buf = malloc(slice.bytes + RFS_DISTANCE_STEP);
    assert_non_null(buf);
    struct rfs_pool *pool = rfs_pool_new(1);
    struct rfs_assembler *assembler = world_fast_assembler(&world, 64 * MIB, pool);
    /*
     * From within the first piece: that is the reader's own; the last is too short to be worth it.
     */
    const struct rfs_windows ahead = {.lent = {7, UINT64_MAX}};
    rfs_assemble_ahead(assembler, &copy, &(struct rfs_slice){0}, &ahead);
    rfs_pool_free(pool);
    rfs_assembler_count(assembler, &counters);
    assert_int_equal(counters.ahead, 3);
    assert_int_equal(source_bytes(&world), 3 * MIB);
    struct rfs_pins pins = {0};
    struct iovec iov[8];
    struct rfs_reply reply = {.at = buf, .iov = iov, .iov_max = 8, .pins = &pins};
    assert_int_equal(rfs_assemble_borrow(assembler, &slice, 0, slice.bytes, true, &reply), 0);
    const int count = reply.iov_count;
    assert_int_equal(pins.n, 3);
    assert_int_equal(source_bytes(&world), slice.bytes); /* each byte once */
    uint64_t at = 0;
    for (int i = 0; i < count; i++) {
        assert_memory_equal(iov[i].iov_base, bytes + at, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    assert_int_equal(at, slice.bytes);
    rfs_assemble_unpin(assembler, &pins);
    /* They are gone: the next reader reads. */
    assert_int_equal(rfs_assemble(assembler, &slice, MIB, MIB, true, buf), 0);
    assert_memory_equal(buf, bytes + MIB, MIB);
    assert_int_equal(source_bytes(&world), slice.bytes + MIB);
    rfs_assembler_count(assembler, &counters);
    assert_int_equal(counters.cache.hits + counters.cache.misses, 0);
    rfs_assembler_free(assembler);
    free(buf);
    free(bytes);
    rfs_slice_free(&slice);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_slices),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_pieces_are_made_once),
        cmocka_unit_test(test_small_reads_leave_no_piece),
        cmocka_unit_test(test_pinned_pieces_stay),
        cmocka_unit_test(test_changed_source_after_caching),
        cmocka_unit_test(test_files_are_compared_once_a_request),
        cmocka_unit_test(test_changed_source_before_read_ahead),
        cmocka_unit_test(test_read_ahead),
        cmocka_unit_test(test_read_ahead_of_what_is_contiguous),
    };
    rng = random_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
