/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"
#include "base/thread.h"

#include "tests/support/valgrind.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void add_one(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void test_free_runs_what_is_queued(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(2);
    atomic_int done = 0;

    (void)state;
    for (int i = 0; i < 500; i++)
        assert_true(rfs_pool_submit(pool, add_one, &done, SIZE_MAX));
    rfs_pool_free(pool);
    assert_int_equal(done, 500);
    rfs_pool_free(NULL);
}

static int in_this_thread(void *ctx, size_t i)
{
    (void)i;
    return pthread_equal(*(pthread_t *)ctx, pthread_self()) ? 0 : -1;
}

static void test_held(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(2);
    pthread_t self = pthread_self();
    atomic_int done = 0;

    (void)state;
    rfs_pool_hold(pool, true);
    assert_false(rfs_pool_submit(pool, add_one, &done, SIZE_MAX));
    assert_int_equal(rfs_pool_for(pool, 100, in_this_thread, &self), 0);
    rfs_pool_hold(pool, false);
    assert_true(rfs_pool_submit(pool, add_one, &done, SIZE_MAX));
    rfs_pool_free(pool);
    assert_int_equal(done, 1);
}

struct gate {
    sem_t entered, open;
};

static void wait_at(void *arg)
{
    struct gate *gate = arg;

    sem_post(&gate->entered);
    sem_wait(&gate->open);
}

static void test_limit(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(1);
    struct gate gate;
    atomic_int done = 0;

    (void)state;
    sem_init(&gate.entered, 0, 0);
    sem_init(&gate.open, 0, 0);
    assert_false(rfs_pool_submit(pool, wait_at, &gate, 0));
    assert_true(rfs_pool_submit(pool, wait_at, &gate, 1));
    sem_wait(&gate.entered); /* the only worker is busy; what is queued now waits */
    assert_true(rfs_pool_submit(pool, add_one, &done, 2));
    assert_true(rfs_pool_submit(pool, add_one, &done, 2));
    assert_false(rfs_pool_submit(pool, add_one, &done, 2));
    sem_post(&gate.open);
    rfs_pool_free(pool);
    assert_int_equal(done, 2);
    sem_destroy(&gate.entered);
    sem_destroy(&gate.open);
}

/* As many jobs as workers meet here only if each runs in a thread of its own. */
static void meet(void *arg)
{
    pthread_barrier_wait(arg);
}

static void test_all_workers_are_started(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(3);
    pthread_barrier_t barrier;

    (void)state;
    pthread_barrier_init(&barrier, NULL, 4);
    for (int i = 0; i < 3; i++)
        assert_true(rfs_pool_submit(pool, meet, &barrier, SIZE_MAX));
    pthread_barrier_wait(&barrier);
    rfs_pool_free(pool);
    pthread_barrier_destroy(&barrier);
}

static void test_no_thread_no_job(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(0);
    atomic_int done = 0;

    (void)state;
    assert_false(rfs_pool_submit(pool, add_one, &done, 8));
    rfs_pool_free(pool);
    assert_int_equal(done, 0);
}

static void test_used_after_a_fork(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(2);
    atomic_int done = 0;
    int status = -1;
    const pid_t child = fork();

    (void)state;
    if (child == 0) {
        const bool queued = rfs_pool_submit(pool, add_one, &done, 8);
        rfs_pool_free(pool);
        _exit(queued && done == 1 ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rfs_pool_free(pool);
}

enum { ITEMS = 3000 };

struct counters {
    struct rfs_pool *pool;
    atomic_int seen[ITEMS];
    atomic_int calls;
    size_t bad; /* the index that fails */
    int with;
};

static int count(void *ctx, size_t i)
{
    struct counters *t = ctx;

    atomic_fetch_add(&t->calls, 1);
    atomic_fetch_add(&t->seen[i], 1);
    return i == t->bad ? t->with : 0;
}

static void test_for_visits_each_once(void **state)
{
    static struct counters t = {.bad = ITEMS};
    struct rfs_pool *pool = rfs_pool_new(3);

    (void)state;
    assert_int_equal(rfs_pool_for(pool, ITEMS, count, &t), 0);
    for (size_t i = 0; i < ITEMS; i++)
        assert_int_equal(t.seen[i], 1);
    assert_int_equal(rfs_pool_for(pool, 0, count, &t), 0);
    assert_int_equal(t.calls, ITEMS);
    assert_int_equal(rfs_pool_for(pool, 1, count, &t), 0);
    assert_int_equal(t.seen[0], 2);
    rfs_pool_free(pool);
}

static void test_for_stops_at_a_failure(void **state)
{
    static struct counters t = {.bad = 5, .with = -7};
    struct rfs_pool *pool = rfs_pool_new(2);

    (void)state;
    assert_int_equal(rfs_pool_for(pool, ITEMS, count, &t), -7);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(t.seen[i], 1); /* handed out before it */
    rfs_pool_free(pool);
}

static void test_for_without_workers(void **state)
{
    static struct counters t = {.bad = 5, .with = 3};
    struct rfs_pool *pool = rfs_pool_new(0);

    (void)state;
    assert_int_equal(rfs_pool_for(pool, ITEMS, count, &t), 3);
    assert_int_equal(t.calls, 6); /* alone, the order is known */
    rfs_pool_free(pool);
}

static int meet_one(void *ctx, size_t i)
{
    (void)i;
    pthread_barrier_wait(ctx);
    return 0;
}

static void test_for_uses_caller_and_workers(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(2);
    pthread_barrier_t barrier;

    (void)state;
    pthread_barrier_init(&barrier, NULL, 3);
    assert_int_equal(rfs_pool_for(pool, 3, meet_one, &barrier), 0);
    rfs_pool_free(pool);
    pthread_barrier_destroy(&barrier);
}

static int nest(void *ctx, size_t i)
{
    struct counters *t = ctx;

    (void)i;
    return rfs_pool_for(t->pool, 20, count, t);
}

static void test_for_inside_for(void **state)
{
    static struct counters t = {.bad = ITEMS};

    (void)state;
    t.pool = rfs_pool_new(2);
    assert_int_equal(rfs_pool_for(t.pool, 50, nest, &t), 0);
    assert_int_equal(t.calls, 50 * 20);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(t.seen[i], 50);
    rfs_pool_free(t.pool);
}

/* Jobs that wait have threads of their own, beside the one that computes. */
static void test_jobs_that_wait(void **state)
{
    enum { JOBS = 12 };
    struct rfs_pool *pool = rfs_pool_new(1);
    pthread_barrier_t barrier;
    atomic_int done = 0;

    (void)state;
    pthread_barrier_init(&barrier, NULL, JOBS + 1);
    for (int i = 0; i < JOBS; i++)
        assert_true(rfs_pool_submit_waiting(pool, meet, &barrier));
    assert_true(rfs_pool_submit(pool, add_one, &done, SIZE_MAX));
    while (done == 0) /* they all wait yet */
        sched_yield();
    pthread_barrier_wait(&barrier);
    rfs_pool_free(pool);
    pthread_barrier_destroy(&barrier);
}

static void test_jobs_that_wait_are_not_queued_behind_others(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(2);
    struct gate gate;

    (void)state;
    sem_init(&gate.entered, 0, 0);
    sem_init(&gate.open, 0, 0);
    for (unsigned i = 0; i < RFS_POOL_WAITERS; i++)
        assert_true(rfs_pool_submit_waiting(pool, wait_at, &gate));
    assert_false(rfs_pool_submit_waiting(pool, wait_at, &gate));
    for (unsigned i = 0; i < RFS_POOL_WAITERS; i++)
        sem_wait(&gate.entered);
    assert_false(rfs_pool_submit_waiting(pool, wait_at, &gate));
    /* Nor does a job that computes wait for them. */
    assert_true(rfs_pool_submit(pool, wait_at, &gate, 1));
    sem_wait(&gate.entered);
    for (unsigned i = 0; i <= RFS_POOL_WAITERS; i++)
        sem_post(&gate.open);
    rfs_pool_free(pool);
    pool = rfs_pool_new(0);
    assert_false(rfs_pool_submit_waiting(pool, wait_at, &gate));
    rfs_pool_free(pool);
    sem_destroy(&gate.entered);
    sem_destroy(&gate.open);
}

/* Calls that sleep, until enough of them are there at once. */
struct sleepers {
    atomic_int now;
    atomic_bool enough;
};

static int sleep_once(void *ctx, size_t i)
{
    struct sleepers *sleepers = ctx;

    (void)i;
    if (atomic_fetch_add(&sleepers->now, 1) + 1 >= 8)
        atomic_store(&sleepers->enough, true);
    if (!sleepers->enough)
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    atomic_fetch_sub(&sleepers->now, 1);
    return 0;
}

static void test_for_gets_more_threads_where_calls_wait(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(2);
    struct sleepers sleepers = {0};

    (void)state;
    assert_int_equal(rfs_pool_for(pool, 20000, sleep_once, &sleepers), 0);
    assert_true(sleepers.enough);
    rfs_pool_free(pool);
}

#ifdef __SANITIZE_THREAD__ /* atomics take its locks */
#define COMPUTING_WAITS true
#else /* one thread runs at a time, and the others wait */
#define COMPUTING_WAITS is_under_valgrind()
#endif

static int two_of(void *ctx, size_t i)
{
    atomic_int *most = ctx;
    static atomic_int now;
    const int n = atomic_fetch_add(&now, 1) + 1;

    (void)i;
    for (int seen = *most; n > seen && !atomic_compare_exchange_weak(most, &seen, n);)
        continue;
    for (volatile int k = 0; k < 200; k++)
        continue;
    atomic_fetch_sub(&now, 1);
    return 0;
}

static void test_for_gets_no_more_where_they_compute(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(2);
    atomic_int most = 0;

    (void)state;
    assert_int_equal(rfs_pool_for(pool, 50000, two_of, &most), 0);
    assert_in_range(most, 1, COMPUTING_WAITS ? 64 : 3);
    rfs_pool_free(pool);
}

#ifdef __GLIBC__

/* Notes how large the stack is of the thread that it runs in. */
static void measure_stack(void *arg)
{
    pthread_attr_t attributes;
    size_t bytes = 0;

    assert_int_equal(pthread_getattr_np(pthread_self(), &attributes), 0);
    assert_int_equal(pthread_attr_getstacksize(&attributes, &bytes), 0);
    pthread_attr_destroy(&attributes);
    atomic_store((atomic_size_t *)arg, bytes);
}

/* Stacks of threads have one size, whatever the shell's limit was (ulimit -s). */
static void test_stacks(void **state)
{
    const size_t sizes[] = {256 << 10, 8 << 20}; /* aarch64 takes no less than 128 KiB */
    pthread_attr_t before;

    (void)state;
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    for (size_t i = 0; i < 2; i++) {
        struct rfs_pool *pool = rfs_pool_new(1);
        atomic_size_t bytes = 0;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        assert_int_equal(pthread_attr_setstacksize(&attributes, sizes[i]), 0);
        assert_int_equal(pthread_setattr_default_np(&attributes), 0);
        pthread_attr_destroy(&attributes);
        assert_true(rfs_pool_submit(pool, measure_stack, &bytes, SIZE_MAX));
        rfs_pool_free(pool);
        assert_int_equal(bytes, RFS_THREAD_STACK);
    }
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    pthread_attr_destroy(&before);
}

#else

static void test_stacks(void **state)
{
    (void)state;
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_runs_what_is_queued),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_all_workers_are_started),
        cmocka_unit_test(test_no_thread_no_job),
        cmocka_unit_test(test_used_after_a_fork),
        cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_for_visits_each_once),
        cmocka_unit_test(test_for_stops_at_a_failure),
        cmocka_unit_test(test_for_without_workers),
        cmocka_unit_test(test_for_uses_caller_and_workers),
        cmocka_unit_test(test_for_inside_for),
        cmocka_unit_test(test_jobs_that_wait),
        cmocka_unit_test(test_jobs_that_wait_are_not_queued_behind_others),
        cmocka_unit_test(test_for_gets_more_threads_where_calls_wait),
        cmocka_unit_test(test_for_gets_no_more_where_they_compute),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
