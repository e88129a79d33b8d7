/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of plain blocks: each is made once, all together stay within the budget, and everybody
 * gets on.
 */
#include "store/blocks.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 65536u /* of a block: whole pages on each machine */

struct maker {
    uint32_t file, number;
    size_t bytes;
    int rc;
    long sleep_ms;
    atomic_uint *calls;
};

static void fill(uint32_t file, uint32_t number, unsigned char *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char)(file * 31 + number * 7 + i);
}

static int make(void *ctx, unsigned char *data, size_t *bytes)
{
    const struct maker *maker = ctx;
    (void)bytes;
    if (maker->calls)
        atomic_fetch_add(maker->calls, 1);
    if (maker->sleep_ms > 0)
        nanosleep(&(struct timespec){.tv_nsec = maker->sleep_ms * 1000000}, NULL);
    fill(maker->file, maker->number, data, maker->bytes);
    return maker->rc;
}

static int get(struct rfs_blocks *blocks, uint32_t file, uint32_t number,
               struct rfs_block_held *held)
{
    struct maker maker = {.file = file, .number = number, .bytes = SIZE};
    return rfs_blocks_get(blocks, file, number, SIZE, make, &maker, held);
}

static bool is_right(const struct rfs_block_held *held, uint32_t file, uint32_t number)
{
    unsigned char *want = malloc(SIZE);

    assert_non_null(want);
    fill(file, number, want, SIZE);
    const bool same = memcmp(held->data, want, SIZE) == 0;
    free(want);
    return same;
}

static struct rfs_blocks_counters counted(struct rfs_blocks *blocks)
{
    struct rfs_blocks_counters c;
    rfs_blocks_count(blocks, &c);
    return c;
}

static void touch(struct rfs_blocks *blocks, uint32_t file, uint32_t number)
{
    struct rfs_block_held held;
    assert_int_equal(get(blocks, file, number, &held), 0);
    assert_true(is_right(&held, file, number));
    rfs_blocks_put(blocks, &held);
}

static void test_least_recently_used(void **state)
{
    (void)state;
    struct rfs_blocks *blocks = rfs_blocks_new(3 * SIZE);
    for (uint32_t i = 0; i < 3; i++)
        touch(blocks, 0, i);
    assert_int_equal(counted(blocks).made, 3);
    assert_int_equal(counted(blocks).bytes, 3 * SIZE);
    touch(blocks, 0, 0); /* 1 is the oldest now */
    touch(blocks, 1, 0);
    assert_int_equal(counted(blocks).made, 4);
    assert_int_equal(counted(blocks).evictions, 1);
    touch(blocks, 0, 0);
    touch(blocks, 0, 2);
    assert_int_equal(counted(blocks).made, 4);
    touch(blocks, 0, 1);
    assert_int_equal(counted(blocks).made, 5);
    assert_int_equal(counted(blocks).bytes, 3 * SIZE);
    rfs_blocks_drop(blocks);
    assert_int_equal(counted(blocks).bytes, 0);
    touch(blocks, 0, 1);
    assert_int_equal(counted(blocks).made, 6);
    rfs_blocks_free(blocks);
}

/* Blocks of any size, which take whole pages: never over the budget. */
static void test_sizes(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct rfs_blocks *blocks = rfs_blocks_new(10 * page);
    struct rfs_block_held held;
    for (uint32_t i = 0; i < 200; i++) {
        const size_t bytes = 1 + i * 977 % (10 * page);
        struct maker maker = {.file = i, .bytes = bytes};
        assert_int_equal(rfs_blocks_get(blocks, i, 0, bytes, make, &maker, &held), 0);
        assert_int_equal(held.data[bytes - 1], (unsigned char)(i * 31 + bytes - 1));
        assert_true(counted(blocks).bytes <= 10 * page);
        rfs_blocks_put(blocks, &held);
    }
    struct maker maker = {.bytes = 10 * page + 1};
    assert_int_equal(rfs_blocks_get(blocks, 999, 0, maker.bytes, make, &maker, &held), -EFBIG);
    rfs_blocks_free(blocks);
}

/* A maker keeps what it needs: the rest is free for others, and all of it is memory. */
static int make_less(void *ctx, unsigned char *data, size_t *bytes)
{
    const struct maker *maker = ctx;
    memset(data, 1, *bytes);
    *bytes = maker->bytes;
    fill(maker->file, maker->number, data, *bytes);
    return 0;
}

static void test_less(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct rfs_blocks *blocks = rfs_blocks_new(12 * page);
    struct rfs_block_held held[4];
    for (uint32_t i = 0; i < 4; i++) { /* each takes 9 pages, and leaves 1 or 2 */
        struct maker maker = {.file = i, .bytes = i % 2 ? page + 7 : 5};
        assert_int_equal(rfs_blocks_get(blocks, i, 0, 9 * page, make_less, &maker, &held[i]), 0);
        assert_int_equal(held[i].bytes, maker.bytes);
        rfs_blocks_put(blocks, &held[i]);
        assert_int_equal(held[i].data[maker.bytes - 1], (unsigned char)(i * 31 + maker.bytes - 1));
        assert_true(counted(blocks).bytes <= 12 * page);
    }
    assert_int_equal(counted(blocks).bytes, 5 * page); /* the first one went */
    struct maker maker = {.file = 9, .bytes = 9 * page};
    assert_int_equal(rfs_blocks_get(blocks, 9, 0, 9 * page, make_less, &maker, &held[0]), 0);
    assert_int_equal(held[0].bytes, 9 * page);
    rfs_blocks_put(blocks, &held[0]);
    rfs_blocks_free(blocks);
}

/* A smaller budget is kept at once, and one that is too small for a block is no reason to wait. */
static void test_limit(void **state)
{
    (void)state;
    struct rfs_blocks *blocks = rfs_blocks_new(4 * SIZE);
    struct rfs_block_held held;
    for (uint32_t i = 0; i < 4; i++)
        touch(blocks, 0, i);
    rfs_blocks_limit(blocks, 2 * SIZE);
    assert_int_equal(rfs_blocks_largest(blocks), 2 * SIZE);
    assert_true(counted(blocks).bytes <= 2 * SIZE);
    for (uint32_t i = 0; i < 4; i++)
        touch(blocks, 0, i);
    assert_true(counted(blocks).bytes <= 2 * SIZE);
    rfs_blocks_limit(blocks, SIZE - 1);
    assert_int_equal(get(blocks, 0, 0, &held), -EFBIG);
    rfs_blocks_limit(blocks, 4 * SIZE);
    touch(blocks, 0, 0);
    rfs_blocks_free(blocks);
}

static void test_many_small(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct rfs_blocks *blocks = rfs_blocks_new(UINT64_C(1) << 40);
    for (uint32_t i = 0; i < RFS_BLOCKS_MOST + 100; i++) {
        struct rfs_block_held held;
        struct maker maker = {.file = i, .bytes = 10};
        assert_int_equal(rfs_blocks_get(blocks, i, 0, 10, make, &maker, &held), 0);
        rfs_blocks_put(blocks, &held);
    }
    assert_int_equal(counted(blocks).bytes, RFS_BLOCKS_MOST * page);
    rfs_blocks_free(blocks);
}

struct reader {
    struct rfs_blocks *blocks;
    struct maker maker;
    uint64_t seed;
    unsigned rounds;
    uint64_t budget;
    int rc;
};

static void *read_once(void *arg)
{
    struct reader *reader = arg;
    struct rfs_block_held held;
    reader->rc = rfs_blocks_get(reader->blocks, 5, 6, SIZE, make, &reader->maker, &held);
    if (reader->rc == 0) {
        reader->rc = is_right(&held, 5, 6) ? 0 : 1;
        rfs_blocks_put(reader->blocks, &held);
    }
    return NULL;
}

/*
 * Eight threads want a block at once: one makes it, and all get it, or the reason why there is
 * none.
 */
static void test_single_flight(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        const int rc = round == 0 ? 0 : -EBADMSG;
        atomic_uint calls = 0;
        struct rfs_blocks *blocks = rfs_blocks_new(SIZE);
        struct reader readers[8];
        pthread_t threads[8];
        for (unsigned i = 0; i < 8; i++) {
            readers[i] = (struct reader){
                .blocks = blocks,
                .maker = {5, 6, SIZE, rc, 100, &calls},
            };
            assert_int_equal(pthread_create(&threads[i], NULL, read_once, &readers[i]), 0);
        }
        for (unsigned i = 0; i < 8; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(readers[i].rc, rc);
        }
        if (rc == 0)
            assert_int_equal(atomic_load(&calls), 1);
        assert_int_equal(counted(blocks).bytes, rc == 0 ? SIZE : 0);
        struct rfs_block_held held; /* what failed may be tried again */
        assert_int_equal(get(blocks, 5, 6, &held), 0);
        assert_true(is_right(&held, 5, 6));
        rfs_blocks_put(blocks, &held);
        rfs_blocks_free(blocks);
    }
}

static void *read_many(void *arg)
{
    struct reader *reader = arg;
    uint64_t state = reader->seed;
    for (unsigned i = 0; i < reader->rounds; i++) {
        struct rfs_block_held held;
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const uint32_t file = (uint32_t)(state >> 60), number = (uint32_t)(state >> 40) % 4;
        const int rc = get(reader->blocks, file, number, &held);
        if (rc < 0 || !is_right(&held, file, number) ||
            counted(reader->blocks).bytes > reader->budget)
            reader->rc = rc < 0 ? rc : 1;
        if (rc == 0)
            rfs_blocks_put(reader->blocks, &held);
    }
    return NULL;
}

static void *get_other(void *ctx)
{
    struct reader *reader = ctx;
    struct rfs_block_held held;
    reader->rc = get(reader->blocks, 1, 1, &held);
    if (reader->rc == 0)
        rfs_blocks_put(reader->blocks, &held);
    return NULL;
}

/* Who waits for the only block, which another holds, goes on when that one gives it back. */
static void test_held(void **state)
{
    (void)state;
    struct rfs_blocks *blocks = rfs_blocks_new(SIZE);
    struct reader reader = {.blocks = blocks, .rc = 1};
    struct rfs_block_held held;
    pthread_t thread;
    assert_int_equal(get(blocks, 0, 0, &held), 0);
    assert_int_equal(pthread_create(&thread, NULL, get_other, &reader), 0);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    rfs_blocks_put(blocks, &held);
    alarm(20); /* it may wait for RFS_BLOCK_TURN */
    pthread_join(thread, NULL);
    alarm(0);
    assert_int_equal(reader.rc, 0);
    rfs_blocks_free(blocks);
}

static void run(struct rfs_blocks *blocks, uint64_t budget, unsigned rounds, void *(*body)(void *),
                unsigned n)
{
    struct reader readers[8] = {0};
    pthread_t threads[8];
    for (unsigned i = 0; i < n; i++) {
        readers[i] =
            (struct reader){.blocks = blocks, .seed = i + 1, .rounds = rounds, .budget = budget};
        assert_int_equal(pthread_create(&threads[i], NULL, body, &readers[i]), 0);
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].rc, 0);
    }
}

/* Eight threads, 64 blocks, room for 16: each thread takes away what others have made, in time. */
static void test_threads(void **state)
{
    (void)state;
    struct rfs_blocks *blocks = rfs_blocks_new(16 * SIZE);
    run(blocks, 16 * SIZE, 60, read_many, 8);
    rfs_blocks_free(blocks);
}

/* Its own block again and again, as a walk from header to header. */
static void *read_own(void *arg)
{
    struct reader *reader = arg;
    for (unsigned i = 0; i < reader->rounds; i++) {
        struct rfs_block_held held;
        const int rc = get(reader->blocks, (uint32_t)reader->seed, i / 500, &held);
        if (rc < 0) {
            reader->rc = rc;
            break;
        }
        rfs_blocks_put(reader->blocks, &held);
    }
    return NULL;
}

/* With room for one block, threads take turns rather than make a block for each read. */
static void test_turns(void **state)
{
    (void)state;
    struct rfs_blocks *blocks = rfs_blocks_new(SIZE);
    run(blocks, SIZE, 2000, read_own, 4);
    assert_true(counted(blocks).made >= 4 * 4);
    assert_true(counted(blocks).made < 4 * 2000 / 4);
    rfs_blocks_free(blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_recently_used),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_less),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_many_small),
        cmocka_unit_test(test_single_flight),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
