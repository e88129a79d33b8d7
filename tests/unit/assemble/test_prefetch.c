/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slow sources: requests are merged and made at once, bytes are right, failures ahead are nobody's,
 * the budget holds. Reads of sources go through a pread of this program, which sleeps, counts,
 * fails or waits for others.
 */
#include "assemble/assembler.h"
#include "assemble/internal.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define PATIENCE 60 /* seconds until a test that waits for others gives up */

static struct random rng;

/* ---- the storage ----------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned sleep_us;  /* 0: fast */
    unsigned gather_up; /* reads wait until so many are under way; 0: they don't */
    bool shut;          /* reads wait until it is not */
    unsigned fail;      /* so many reads fail yet */
    unsigned now, most; /* under way */
    unsigned reads;
    uint64_t largest, bytes;
} storage = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/*
 * Reads of this thread that have waited. No other switch of threads counts as waiting for storage:
 * on a busy machine one by a page fault takes as long.
 */
static _Thread_local long waits;

int getrusage(__rusage_who_t who, struct rusage *usage);
int getrusage(__rusage_who_t who, struct rusage *usage)
{
    const int rc = (int)syscall(SYS_getrusage, who, usage);

    usage->ru_nvcsw = waits;
    return rc;
}

static void reset(unsigned sleep_us)
{
    pthread_mutex_lock(&storage.lock);
    storage.sleep_us = sleep_us;
    storage.gather_up = storage.fail = 0;
    storage.shut = false;
    storage.most = storage.reads = 0;
    storage.largest = storage.bytes = 0;
    pthread_cond_broadcast(&storage.changed);
    pthread_mutex_unlock(&storage.lock);
}

/* False when it is to fail. */
static bool enter(size_t size)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE;
    pthread_mutex_lock(&storage.lock);
    storage.reads++;
    storage.largest = rfs_max_u64(storage.largest, size);
    storage.bytes += size;
    if (++storage.now > storage.most)
        storage.most = storage.now;
    if (storage.most >= storage.gather_up)
        storage.gather_up = 0;
    pthread_cond_broadcast(&storage.changed);
    waits += storage.shut || storage.gather_up > 0 || storage.sleep_us > 0;
    while ((storage.shut || storage.gather_up > 0) &&
           pthread_cond_timedwait(&storage.changed, &storage.lock, &end) == 0)
        continue;
    const unsigned sleep_us = storage.sleep_us;
    const bool fails = storage.fail > 0;
    storage.fail -= fails;
    pthread_mutex_unlock(&storage.lock);
    if (sleep_us > 0)
        nanosleep(&(struct timespec){0, (long)sleep_us * 1000}, NULL);
    return !fails;
}

static ssize_t slow_pread(int fd, void *buf, size_t n, off_t offset)
{
    const bool fine = enter(n);
    const ssize_t got = fine ? syscall(SYS_pread64, fd, buf, n, offset) : -1;
    const int code = fine ? errno : EIO;
    pthread_mutex_lock(&storage.lock);
    storage.now--;
    pthread_mutex_unlock(&storage.lock);
    errno = code;
    return got;
}

ssize_t pread(int fd, void *buf, size_t n, off_t offset);
ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
    return slow_pread(fd, buf, n, offset);
}

ssize_t pread64(int fd, void *buf, size_t n, off_t offset);
ssize_t pread64(int fd, void *buf, size_t n, off_t offset)
{
    return slow_pread(fd, buf, n, offset);
}

static void set(unsigned *field, unsigned value)
{
    pthread_mutex_lock(&storage.lock);
    *field = value;
    pthread_mutex_unlock(&storage.lock);
}

/* ---- what is read ---------------------------------------------------------------------------- */

struct place {
    struct world world;
    struct rfs_slice slice;
    unsigned char *bytes, *buf;
    struct rfs_pool *pool;
    struct rfs_assembler *assembler;
};

/* Ranks with an equal part of each row, joined: 8192 rows of COLUMNS times 16 bytes. */
static void open_columns(struct place *place, uint64_t columns, uint64_t ranks, uint64_t budget)
{
    const uint64_t from[] = {0, 0}, size[] = {8192, columns};
    reset(0);
    place->world =
        (struct world){.ndim = 2, .dims = {8192, columns}, .pieces = {1, ranks}, .elem = 16};
    world_open(&place->world, &rng);
    place->slice = world_slice(&place->world, from, size, true);
    place->bytes = world_bytes(&place->world, from, size);
    place->buf = malloc(place->slice.bytes + RFS_DISTANCE_STEP);
    place->pool = rfs_pool_new(2);
    place->assembler = rfs_assembler_new(place->world.catalog, budget, place->pool);
    assert_non_null(place->buf);
    assert_non_null(place->assembler);
    struct stat st;
    for (uint32_t rank = 0; rank < ranks; rank++) /* as indexing does */
        assert_int_equal(
            rfs_files_stat(place->world.files, rfs_catalog_file(place->world.catalog, rank), &st),
            0);
}

/* Two ranks with a half of each row of 2 KiB: 16 MiB, 8 in each file. */
static void open_place(struct place *place, uint64_t budget)
{
    open_columns(place, 128, 2, budget);
}

static void close_place(struct place *place)
{
    reset(0);
    rfs_assembler_stop(place->assembler);
    rfs_pool_free(place->pool);
    rfs_assembler_free(place->assembler);
    free(place->buf);
    free(place->bytes);
    rfs_slice_free(&place->slice);
    world_close(&place->world);
}

static int read_at(struct place *place, uint64_t begin, uint64_t size)
{
    const int rc =
        rfs_assemble(place->assembler, &place->slice, begin, (size_t)size, true, place->buf);
    if (rc == 0)
        assert_memory_equal(place->buf, place->bytes + begin, size);
    return rc;
}

/* Reads of a thread that was fast are looked at closely only after a slow one. */
static void find_slow(struct place *place)
{
    assert_int_equal(rfs_assemble_reach(place->assembler), 0);
    set(&storage.sleep_us, 3000);
    for (int i = 0; i < 4 && rfs_assemble_reach(place->assembler) == 0; i++)
        assert_int_equal(rfs_assemble(place->assembler, &place->slice, 0, 100, false, place->buf),
                         0);
    assert_true(rfs_assemble_reach(place->assembler) >= 3 * MIB);
    reset(3000);
}

/* Returns whether there was room for it. */
static bool want(struct place *place, uint64_t begin, uint64_t end)
{
    struct rfs_gather_ranges ranges = {0};
    assert_int_equal(rfs_gather_note(&place->slice, begin, end, &ranges), 0);
    const bool room = rfs_assemble_prefetch(place->assembler, &ranges);
    free(ranges.data);
    return room;
}

static struct rfs_prefetch_counters count(struct place *place)
{
    struct rfs_prefetch_counters counters;
    rfs_prefetch_count(place->assembler->prefetch, &counters);
    return counters;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_fast_sources_are_not_staged(void **state)
{
    struct place place;
    (void)state;
    open_place(&place, 64 * MIB);
    for (uint64_t at = 0; at < place.slice.bytes; at += MIB)
        assert_int_equal(read_at(&place, at, MIB), 0);
    assert_int_equal(rfs_assemble_reach(place.assembler), 0);
    assert_int_equal(count(&place).reads, 0);
    close_place(&place);
}

static void test_requests_are_merged(void **state)
{
    struct place place;
    (void)state;
    open_place(&place, 64 * MIB);
    find_slow(&place);
    want(&place, MIB, 9 * MIB); /* 4 MiB of each file */
    for (uint64_t at = MIB; at < 9 * MIB; at += MIB)
        assert_int_equal(read_at(&place, at, MIB), 0);
    /* Extents, of which a file has up to three, may end anywhere. */
    assert_in_range(storage.reads, 8, 8 + 2 * 3);
    assert_true(storage.largest == RFS_PREFETCH_WINDOW);
    assert_in_range(storage.bytes, 8 * MIB, 8 * MIB + 12 * RFS_PREFETCH_PAGE);
    assert_int_equal(count(&place).reads, storage.reads); /* nobody read by himself */
    assert_int_equal(count(&place).windows, 0);           /* all was used, and went */
    close_place(&place);
}

/*
 * All of a slice is read ahead to its end, though less than a page is left for the last window.
 * Where more of the slice follows, those bytes are left for the next window, which begins there.
 */
static void test_short_ends(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        struct place place;
        open_place(&place, 64 * MIB);
        const struct rfs_entry *entry = place.world.entry;
        while (entry[0].extent_count > 0 || entry[1].extent_count > 0 || entry[0].offset == 0 ||
               entry[1].offset == 0) { /* in several extents, or all in whole windows */
            close_place(&place);
            open_place(&place, 64 * MIB);
        }
        find_slow(&place);
        const uint64_t end = cut ? 14 * MIB : 16 * MIB;
        want(&place, 0, end);
        /* None is freed before it is used. */
        assert_int_equal(count(&place).windows, cut ? 14 : 18);
        for (uint64_t at = 0; at < end; at += MIB)
            assert_int_equal(read_at(&place, at, MIB), 0);
        close_place(&place);
    }
}

/*
 * What is read ahead takes no window that a reader still wants, even one that it has used in part:
 * it waits until there is room for all of it.
 */
static void test_windows_in_use_stay(void **state)
{
    struct place place;
    (void)state;
    open_place(&place, 24 * MIB); /* 18 windows */
    find_slow(&place);
    assert_true(want(&place, 0, 10 * MIB));
    assert_true(want(&place, 0, 10 * MIB)); /* by another reader, who does not read it */
    assert_int_equal(read_at(&place, 0, MIB), 0);
    const unsigned windows = count(&place).windows;
    assert_false(want(&place, 10 * MIB, 16 * MIB));
    assert_int_equal(count(&place).windows, windows);
    for (uint64_t at = MIB; at < 10 * MIB; at += MIB)
        assert_int_equal(read_at(&place, at, MIB), 0);
    assert_int_equal(count(&place).reads, storage.reads);
    assert_true(count(&place).windows >= 10);      /* six are too few */
    assert_true(want(&place, 10 * MIB, 16 * MIB)); /* those of which all was used may go */
    for (uint64_t at = 10 * MIB; at < 16 * MIB; at += MIB)
        assert_int_equal(read_at(&place, at, MIB), 0);
    assert_int_equal(count(&place).reads, storage.reads);
    close_place(&place);
}

/* Windows for which the pool had no thread are read as soon as it has one, and others want room. */
static void test_queued_windows_are_not_left(void **state)
{
    const struct timespec moment = {0, 1000000};
    struct place place;
    (void)state;
    open_place(&place, 24 * MIB); /* 18 windows */
    find_slow(&place);
    rfs_pool_hold(place.pool, true);
    assert_true(want(&place, 0, 10 * MIB));
    rfs_pool_hold(place.pool, false);
    assert_false(want(&place, 10 * MIB, 16 * MIB));
    for (int i = 0; i < PATIENCE * 1000 && count(&place).reads < count(&place).windows; i++)
        nanosleep(&moment, NULL);
    assert_int_equal(count(&place).reads, count(&place).windows);
    close_place(&place);
}

static void test_requests_are_made_at_once(void **state)
{
    struct place place;
    (void)state;
    open_place(&place, 64 * MIB);
    find_slow(&place);
    set(&storage.gather_up, RFS_CONCURRENCY_LEAST); /* none is answered before so many are there */
    want(&place, MIB, 16 * MIB);
    assert_int_equal(read_at(&place, MIB, 15 * MIB), 0);
    assert_int_equal(storage.gather_up, 0);
    assert_true(storage.most >= RFS_CONCURRENCY_LEAST);
    assert_true(count(&place).at_once >= RFS_CONCURRENCY_LEAST);
    close_place(&place);
}

/* A range that nobody read ahead: its requests are made at once all the same. */
static void test_one_request_of_a_reader(void **state)
{
    struct place place;
    (void)state;
    open_place(&place, 64 * MIB);
    find_slow(&place);
    set(&storage.gather_up, 4);
    assert_int_equal(rfs_assemble(place.assembler, &place.slice, MIB, 8 * MIB, false, place.buf),
                     0);
    assert_memory_equal(place.buf, place.bytes + MIB, 8 * MIB);
    assert_int_equal(storage.gather_up, 0);
    assert_in_range(storage.reads, 8, 8 + 2 * 3);
    /* One that a single request reads is left alone. */
    const unsigned before = storage.reads;
    assert_int_equal(rfs_assemble(place.assembler, &place.slice, 12 * MIB, 100, false, place.buf),
                     0);
    assert_memory_equal(place.buf, place.bytes + 12 * MIB, 100);
    assert_in_range(storage.reads, before + 1, before + 2);
    close_place(&place);
}

/* A contiguous range that is longer than a window, as an export asks for. */
static void test_one_long_range(void **state)
{
    const uint64_t from[] = {0}, size[] = {5 * MIB};
    struct world world = {.ndim = 1, .dims = {5 * MIB}, .pieces = {1}, .elem = 1};
    struct stat st;
    (void)state;
    reset(0);
    world_open(&world, &rng);
    struct rfs_slice slice = world_slice(&world, from, size, true);
    unsigned char *bytes = world_bytes(&world, from, size);
    unsigned char *buf = malloc(5 * MIB);
    struct rfs_pool *pool = rfs_pool_new(2);
    struct rfs_assembler *assembler = rfs_assembler_new(world.catalog, 64 * MIB, pool);
    assert_non_null(buf);
    assert_int_equal(rfs_files_stat(world.files, rfs_catalog_file(world.catalog, 0), &st), 0);
    set(&storage.sleep_us, 3000);
    for (int i = 0; i < 4 && rfs_assemble_reach(assembler) == 0; i++)
        assert_int_equal(rfs_assemble(assembler, &slice, 0, 100, false, buf), 0);
    reset(3000);
    set(&storage.gather_up, 4);
    assert_int_equal(rfs_assemble(assembler, &slice, 0, 5 * MIB, false, buf), 0);
    assert_memory_equal(buf, bytes, 5 * MIB);
    assert_int_equal(storage.gather_up, 0);
    rfs_assembler_stop(assembler);
    rfs_pool_free(pool);
    rfs_assembler_free(assembler);
    rfs_slice_free(&slice);
    free(bytes);
    free(buf);
    world_close(&world);
}

static void test_fast_again(void **state)
{
    struct place place;
    (void)state;
    open_place(&place, 64 * MIB);
    find_slow(&place);
    want(&place, 10 * MIB, 16 * MIB);
    reset(0);
    for (uint64_t at = MIB; at < 10 * MIB; at += MIB / 16) {
        assert_int_equal(rfs_assemble(place.assembler, &place.slice, at, 100, false, place.buf), 0);
        assert_memory_equal(place.buf, place.bytes + at, 100);
    }
    assert_int_equal(rfs_assemble_reach(place.assembler), 0);
    assert_int_equal(read_at(&place, 10 * MIB, 6 * MIB), 0);
    close_place(&place);
}

static unsigned fails_left(void)
{
    pthread_mutex_lock(&storage.lock);
    const unsigned left = storage.fail;
    pthread_mutex_unlock(&storage.lock);
    return left;
}

/* What fails ahead is read again by who needs it. */
/* Reads that bring nothing are quickly done, which is no reason to make more of them at once. */
static void test_failures_do_not_deepen(void **state)
{
    const struct timespec moment = {0, 1000000};
    struct place place;
    unsigned reads = 0;
    (void)state;
    open_place(&place, 64 * MIB);
    find_slow(&place);
    const uint64_t reach = rfs_assemble_reach(place.assembler);
    set(&storage.fail, 1000000);
    while (reads < 40 * RFS_CONCURRENCY_LEAST) {
        want(&place, 0, place.slice.bytes);
        nanosleep(&moment, NULL);
        pthread_mutex_lock(&storage.lock);
        reads = storage.reads;
        pthread_mutex_unlock(&storage.lock);
    }
    assert_int_equal(rfs_assemble_reach(place.assembler), reach);
    assert_int_equal(count(&place).reads, 0);
    close_place(&place);
}

static void test_failures_ahead_are_nobodys(void **state)
{
    struct place place;
    (void)state;
    open_place(&place, 64 * MIB);
    find_slow(&place);
    set(&storage.fail, 3);
    want(&place, MIB, 9 * MIB);
    while (fails_left() > 0)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_int_equal(read_at(&place, MIB, 8 * MIB), 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(
            rfs_files_state(place.world.files, rfs_catalog_file(place.world.catalog, rank)), 0);
    /* The pieces that are made ahead are no different. */
    set(&storage.fail, 1000000);
    struct rfs_slice copy =
        world_slice(&place.world, (uint64_t[]){0, 0}, (uint64_t[]){8192, 128}, true);
    copy.id[0] = place.slice.id[0];
    copy.id[1] = place.slice.id[1];
    const struct rfs_window window = {12 * MIB, 16 * MIB};
    rfs_assemble_ahead(place.assembler, &copy, &(struct rfs_slice){0},
                       &(struct rfs_windows){.kept = window});
    while (fails_left() > 999990)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    pthread_mutex_lock(&place.assembler->lock);
    while (place.assembler->n_runners > 0)
        pthread_cond_wait(&place.assembler->idle, &place.assembler->lock);
    pthread_mutex_unlock(&place.assembler->lock);
    set(&storage.fail, 0);
    assert_int_equal(read_at(&place, 12 * MIB, 4 * MIB), 0);
    close_place(&place);
}

static void test_failures_that_stay(void **state)
{
    struct place place;
    (void)state;
    open_place(&place, 64 * MIB);
    find_slow(&place);
    set(&storage.fail, UINT32_MAX);
    want(&place, 9 * MIB, 16 * MIB);
    assert_int_equal(read_at(&place, MIB, MIB), -EIO);
    reset(0);
    assert_int_equal(read_at(&place, MIB, MIB), -EIO); /* for good */
    close_place(&place);
}

static void test_a_source_that_changes(void **state)
{
    struct place place;
    (void)state;
    open_place(&place, 64 * MIB);
    find_slow(&place);
    want(&place, MIB, 9 * MIB);
    assert_int_equal(read_at(&place, MIB, MIB), 0);
    world_spoil(&place.world, 1);
    assert_int_equal(read_at(&place, 2 * MIB, MIB), -ESTALE); /* of windows that are there */
    close_place(&place);
}

/* Closing waits for what has begun, and for no more. */
static void test_stopping(void **state)
{
    struct place place;
    (void)state;
    open_place(&place, 64 * MIB);
    find_slow(&place);
    storage.shut = true;
    want(&place, MIB, 16 * MIB);
    pthread_mutex_lock(&storage.lock);
    while (storage.now == 0)
        pthread_cond_wait(&storage.changed, &storage.lock);
    pthread_mutex_unlock(&storage.lock);
    rfs_assembler_stop(place.assembler);
    assert_true(count(&place).windows <= RFS_CONCURRENCY_LEAST);
    pthread_mutex_lock(&storage.lock);
    storage.shut = false;
    pthread_cond_broadcast(&storage.changed);
    pthread_mutex_unlock(&storage.lock);
    rfs_pool_free(place.pool);
    place.pool = NULL;
    assert_int_equal(count(&place).windows, 0);
    assert_true(storage.reads <= RFS_CONCURRENCY_LEAST);
    close_place(&place);
}

struct giving_up {
    struct place *place;
    struct rfs_cancel cancel;
    int rc;
};

static void *give_up(void *arg)
{
    struct giving_up *up = arg;
    unsigned char *buf = malloc(2 * MIB + RFS_DISTANCE_STEP);
    assert_non_null(buf);
    rfs_cancel_enter(&up->cancel);
    up->rc = rfs_assemble(up->place->assembler, &up->place->slice, MIB, 2 * MIB, true, buf);
    rfs_cancel_enter(NULL);
    free(buf);
    return NULL;
}

/*
 * A reader that is gone while its windows are being read: they stay what they are, for those who
 * come later.
 */
static void test_a_reader_that_gives_up(void **state)
{
    struct place place;
    struct giving_up up = {.place = &place};
    pthread_t thread;
    (void)state;
    open_place(&place, 64 * MIB);
    find_slow(&place);
    storage.shut = true;
    want(&place, MIB, 3 * MIB);
    pthread_mutex_lock(&storage.lock);
    while (storage.now < 2)
        pthread_cond_wait(&storage.changed, &storage.lock);
    pthread_mutex_unlock(&storage.lock);
    assert_int_equal(pthread_create(&thread, NULL, give_up, &up), 0);
    nanosleep(&(struct timespec){0, 100000000}, NULL); /* it waits for the windows, most likely */
    atomic_store(&up.cancel.now, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(up.rc, -EINTR);
    pthread_mutex_lock(&storage.lock);
    storage.shut = false;
    pthread_cond_broadcast(&storage.changed);
    while (storage.now > 0) {
        pthread_mutex_unlock(&storage.lock);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        pthread_mutex_lock(&storage.lock);
    }
    pthread_mutex_unlock(&storage.lock);
    for (uint64_t at = 0; at < place.slice.bytes; at += 2 * MIB)
        assert_int_equal(read_at(&place, at, 2 * MIB), 0);
    close_place(&place);
}

/* Windows and pieces together, whatever is wanted; with hardly any room as well. */
static void test_the_budget(void **state)
{
    static const uint64_t budgets[] = {0, 3 * MIB, 8 * MIB, 11 * MIB, 40 * MIB};
    (void)state;
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        struct place place;
        struct rfs_assembler_counters counters;
        open_place(&place, budgets[i]);
        set(&storage.sleep_us, 1500);
        for (uint64_t at = 0; at < 16 * MIB; at += MIB / 2) {
            want(&place, rfs_min_u64(at + MIB, 16 * MIB), rfs_min_u64(at + 9 * MIB, 16 * MIB));
            assert_int_equal(read_at(&place, at, MIB / 2), 0);
            rfs_assembler_count(place.assembler, &counters);
            assert_true(counters.cache.bytes <= budgets[i]);
        }
        close_place(&place);
    }
}

/* Bytes of a slice that several threads take in turn, each once, in tasks. */
struct tasks {
    struct place *place;
    uint64_t size;
    atomic_uint_least64_t next;
    atomic_int bad;
};

static void *do_tasks(void *arg)
{
    struct tasks *tasks = arg;
    const struct rfs_slice *slice = &tasks->place->slice;
    for (uint64_t at; (at = atomic_fetch_add(&tasks->next, tasks->size)) < slice->bytes;) {
        const size_t size = (size_t)rfs_min_u64(tasks->size, slice->bytes - at);
        if (rfs_assemble_once(tasks->place->assembler, slice, NULL, at, size,
                              tasks->place->buf + at) != 0 ||
            memcmp(tasks->place->buf + at, tasks->place->bytes + at, size) != 0)
            atomic_store(&tasks->bad, 1);
    }
    return NULL;
}

static void load(struct place *place)
{
    struct tasks tasks = {.place = place, .size = 16 * MIB};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, do_tasks, &tasks), 0);
    do_tasks(&tasks);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(tasks.bad, 0);
}

/* A reader in sequence, for whom as much is read ahead as there is room for. */
static void read_on(struct place *place)
{
    uint64_t ahead = 0;
    for (uint64_t at = 0; at < place->slice.bytes; at += MIB) {
        const uint64_t end = rfs_min_u64(at + 3 * MIB, place->slice.bytes);
        if (end > ahead && want(place, rfs_max_u64(at, ahead), end))
            ahead = end;
        assert_int_equal(read_at(place, at, MIB), 0);
    }
}

/* A reader whose request is for all of it, and nothing was read ahead. */
static void read_at_once(struct place *place)
{
    assert_int_equal(rfs_assemble(place->assembler, &place->slice, 0, (size_t)place->slice.bytes,
                                  false, place->buf),
                     0);
    assert_memory_equal(place->buf, place->bytes, place->slice.bytes);
}

/*
 * More sources than windows, whose rows take turns: no source byte is read twice, and none of them
 * is read in small pieces.
 */
static void test_few_windows(void **state)
{
    static const struct {
        unsigned sources, budget; /* MiB */
        void (*how)(struct place *place);
        unsigned most; /* reads */
    } cases[] = {
        /* Each of 4 or 12 windows has 1 MiB at most: 32, and at each end of a task's some more. */
        {16, 6, load, 32 + 2 * 16 * 4},
        {16, 16, load, 32 + 2 * 16 * 4},
        {64, 16, load, 2 * 64 * 4},
        {3, 6, load, 32 + 2 * 3 * 4},
        /* Each of 32 pieces needs each source. */
        {16, 6, read_on, 32 * 16 * 2},
        {16, 16, read_on, 32 * 16 * 2},
        {16, 6, read_at_once, 32 * 16 * 2},
        {16, 16, read_at_once, 32 * 16 * 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct place place;
        open_columns(&place, cases[i].sources == 3 ? 255 : 256, cases[i].sources,
                     cases[i].budget * MIB);
        find_slow(&place);
        reset(1500);
        cases[i].how(&place);
        assert_true(storage.bytes <= place.slice.bytes / 5 * 6);
        assert_true(storage.reads <= cases[i].most);
        close_place(&place);
    }
}

struct party {
    struct rfs_assembler *assembler;
    const struct rfs_slice *slice;
    const unsigned char *bytes;
    uint64_t seed;
    int bad;
};

static void *take_part(void *arg)
{
    struct party *party = arg;
    struct random random = {party->seed};
    for (int i = 0; i < 12; i++) {
        const uint64_t begin = random_below(&random, party->slice->bytes);
        const uint64_t size = random_in(&random, 1, party->slice->bytes - begin);
        unsigned char *buf = malloc((size_t)size + RFS_DISTANCE_STEP);
        struct rfs_gather_ranges ranges = {0};
        const uint64_t end = begin + random_in(&random, 0, party->slice->bytes - begin);
        if (random_below(&random, 2) && rfs_gather_note(party->slice, begin, end, &ranges) == 0)
            rfs_assemble_prefetch(party->assembler, &ranges);
        free(ranges.data);
        party->bad += !buf ||
                      rfs_assemble(party->assembler, party->slice, begin, (size_t)size,
                                   random_below(&random, 2), buf) != 0 ||
                      memcmp(buf, party->bytes + begin, (size_t)size) != 0;
        free(buf);
    }
    return NULL;
}

/* Any shape, several readers, storage that is now slow and now fast. */
static void test_random_slices(void **state)
{
    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        struct world world;
        unsigned char *bytes;
        struct stat st;
        reset(0);
        world_random(&world, &rng, 3 * MIB);
        const uint64_t from[] = {0, 8};
        const uint64_t size[] = {20000, 24};
        if (turn == 0) /* short runs, to which something is added: held bytes are none of its */
            world = (struct world){
                .ndim = 2, .dims = {20000, 32}, .pieces = {1, 1}, .elem = 4, .plus = 1};
        world_open(&world, &rng);
        struct rfs_slice slice =
            turn == 0 ? world_slice(&world, from, size, true) : world_box(&world, &rng, &bytes);
        if (turn == 0)
            bytes = world_bytes(&world, from, size);
        struct rfs_pool *pool = rfs_pool_new(2);
        struct rfs_assembler *assembler =
            rfs_assembler_new(world.catalog, random_in(&rng, 6, 40) * MIB, pool);
        for (uint32_t rank = 0; rank < world.cells; rank++)
            assert_int_equal(
                rfs_files_stat(world.files, rfs_catalog_file(world.catalog, rank), &st), 0);
        for (int tempo = 0; tempo < 3; tempo++) {
            struct party parties[3];
            pthread_t threads[3];
            set(&storage.sleep_us, tempo == 1 ? 0 : 1200);
            for (int i = 0; i < 3; i++) {
                parties[i] = (struct party){assembler, &slice, bytes, random_next(&rng), 0};
                assert_int_equal(pthread_create(&threads[i], NULL, take_part, &parties[i]), 0);
            }
            for (int i = 0; i < 3; i++) {
                pthread_join(threads[i], NULL);
                assert_int_equal(parties[i].bad, 0);
            }
        }
        rfs_assembler_stop(assembler);
        rfs_pool_free(pool);
        rfs_assembler_free(assembler);
        rfs_slice_free(&slice);
        free(bytes);
        world_close(&world);
    }
}

/* What is noted is what gathering reads, no more and no less. */
static void test_notes_are_what_is_read(void **state)
{
    (void)state;
    reset(0);
    for (int turn = 0; turn < 60; turn++) {
        struct world world;
        unsigned char *bytes;
        world_random(&world, &rng, MIB / 2);
        world.plus = 0; /* of an element that is wanted in part all is read */
        world_open(&world, &rng);
        struct rfs_slice slice = world_box(&world, &rng, &bytes);
        const uint64_t begin = random_below(&rng, slice.bytes);
        const uint64_t end = begin + random_in(&rng, 1, slice.bytes - begin);
        struct rfs_gather_ranges ranges = {0};
        reset(0);
        assert_int_equal(rfs_gather_note(&slice, begin, end, &ranges), 0);
        assert_int_equal(storage.reads, 0);
        uint64_t sum = 0;
        for (size_t i = 0; i < ranges.n; i++)
            sum += ranges.data[i].to - ranges.data[i].from;
        unsigned char *scratch = aligned_alloc(64, RFS_SCRATCH_ROOM);
        unsigned char *dst = malloc((size_t)(end - begin));
        assert_non_null(scratch);
        assert_non_null(dst);
        assert_int_equal(rfs_gather(world.files, &slice, begin, end, scratch, dst,
                                    RFS_GATHER_PROVEN, &(struct rfs_gather_held){0}),
                         0);
        assert_memory_equal(dst, bytes + begin, end - begin);
        assert_int_equal(storage.bytes, sum);
        assert_true(ranges.n <= ranges.requests);
        free(dst);
        free(scratch);
        free(ranges.data);
        rfs_slice_free(&slice);
        free(bytes);
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fast_sources_are_not_staged),
        cmocka_unit_test(test_requests_are_merged),
        cmocka_unit_test(test_short_ends),
        cmocka_unit_test(test_windows_in_use_stay),
        cmocka_unit_test(test_queued_windows_are_not_left),
        cmocka_unit_test(test_requests_are_made_at_once),
        cmocka_unit_test(test_failures_do_not_deepen),
        cmocka_unit_test(test_one_request_of_a_reader),
        cmocka_unit_test(test_one_long_range),
        cmocka_unit_test(test_fast_again),
        cmocka_unit_test(test_failures_ahead_are_nobodys),
        cmocka_unit_test(test_failures_that_stay),
        cmocka_unit_test(test_a_source_that_changes),
        cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_a_reader_that_gives_up),
        cmocka_unit_test(test_the_budget),
        cmocka_unit_test(test_few_windows),
        cmocka_unit_test(test_random_slices),
        cmocka_unit_test(test_notes_are_what_is_read),
    };
    rng = random_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
