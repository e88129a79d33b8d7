/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"

#include "base/cleanup.h"
#include "base/thread.h"
#include "base/wait.h"

#include <pthread.h>

struct job {
    struct job *next;
    void (*fn)(void *arg);
    void *arg;
    bool waits;
};

struct rfs_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake; /* a job was queued, or stopping */
    struct job *head, **tail;
    size_t waiting; /* jobs in the queue */
    unsigned idle;  /* threads that wait for a job */
    unsigned started;
    unsigned wanted;  /* threads for jobs that compute */
    unsigned most;    /* threads, with those for jobs that wait */
    unsigned waiters; /* jobs that wait, in the queue or running */
    bool stopping;
    bool held;
    bool far; /* constant once it is used */
    struct rfs_cancel cancel;
    pthread_t *threads;
};

struct rfs_pool *rfs_pool_new(unsigned threads)
{
    struct rfs_pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    pool->wanted = threads;
    pool->most = threads == 0 ? 0 : threads + RFS_POOL_WAITERS;
    pool->threads = calloc(pool->most > 0 ? pool->most : 1, sizeof *pool->threads);
    if (!pool->threads) {
        free(pool);
        return NULL;
    }
    pool->tail = &pool->head;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    return pool;
}

void rfs_pool_expect_waits(struct rfs_pool *pool)
{
    pool->far = pool->wanted > 0;
}

bool rfs_pool_expects_waits(const struct rfs_pool *pool)
{
    return pool && pool->far;
}

static struct job *take_locked(struct rfs_pool *pool)
{
    struct job *job;

    while (!pool->head && !pool->stopping) {
        pool->idle++;
        pthread_cond_wait(&pool->wake, &pool->lock);
        pool->idle--;
    }
    job = pool->head;
    if (!job)
        return NULL;
    pool->head = job->next;
    if (!pool->head)
        pool->tail = &pool->head;
    pool->waiting--;
    return job;
}

static void *work(void *arg)
{
    struct rfs_pool *pool = arg;

    rfs_cancel_enter(&pool->cancel);
    for (;;) {
        struct job *job;

        pthread_mutex_lock(&pool->lock);
        job = take_locked(pool);
        pthread_mutex_unlock(&pool->lock);
        if (!job)
            return NULL;
        job->fn(job->arg);
        if (job->waits) {
            RFS_LOCKED(&pool->lock);
            pool->waiters--;
        }
        free(job);
    }
}

static bool start_locked(struct rfs_pool *pool)
{
    if (rfs_thread_start(&pool->threads[pool->started], work, pool) != 0)
        return false;
    pool->started++;
    return true;
}

void rfs_pool_hold(struct rfs_pool *pool, bool held)
{
    RFS_LOCKED(&pool->lock);
    pool->held = held;
}

struct rfs_cancel *rfs_pool_cancel(struct rfs_pool *pool)
{
    return &pool->cancel;
}

/* Returns whether one more thread may start, for a job that computes or WAITS. */
static bool may_start(const struct rfs_pool *pool, bool waits)
{
    return pool->started < pool->most && (waits || pool->started < pool->wanted + pool->waiters);
}

static bool has_room(const struct rfs_pool *pool, bool waits, size_t limit)
{
    return waits ? pool->wanted > 0 && pool->waiters < RFS_POOL_WAITERS : pool->waiting < limit;
}

static bool submit(struct rfs_pool *pool, const struct job *what, size_t limit)
{
    struct job *job = malloc(sizeof *job);
    bool queued = false;

    if (!job)
        return false;
    *job = *what;
    pthread_mutex_lock(&pool->lock);
    if (!pool->stopping && !pool->held && has_room(pool, job->waits, limit)) {
        if (pool->idle <= pool->waiting && may_start(pool, job->waits))
            start_locked(pool); /* if it can't, those that run will do */
        if (pool->started > 0) {
            *pool->tail = job;
            pool->tail = &job->next;
            pool->waiting++;
            pool->waiters += job->waits;
            pthread_cond_signal(&pool->wake);
            queued = true;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    if (!queued)
        free(job);
    return queued;
}

bool rfs_pool_submit(struct rfs_pool *pool, void (*fn)(void *arg), void *arg, size_t limit)
{
    return submit(pool, &(struct job){.fn = fn, .arg = arg}, limit);
}

bool rfs_pool_submit_waiting(struct rfs_pool *pool, void (*fn)(void *arg), void *arg)
{
    return submit(pool, &(struct job){.fn = fn, .arg = arg, .waits = true}, 0);
}

void rfs_pool_free(struct rfs_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->started; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool->threads);
    free(pool);
}

/*
 * One rfs_pool_for. Each helper in the queue and the caller own a reference, because a helper may
 * start only after the caller has gone: it finds no index left then, and touches neither fn nor
 * ctx.
 */
struct loop {
    struct rfs_pool *pool; /* not to be touched without an index: it may be gone */
    pthread_mutex_t lock;
    pthread_cond_t idle; /* running became 0 */
    int (*fn)(void *ctx, size_t i);
    void *ctx;
    const struct rfs_cancel *cancel; /* the caller's; not to be touched without an index */
    size_t next, n;
    size_t running; /* calls of fn under way */
    unsigned owners;
    int result;    /* value of the lowest call that failed, which is */
    size_t failed; /* this one */
};

/* The loops whose end this thread has waited for: that is no waiting for storage. */
static _Thread_local unsigned loops_awaited;

static void drop_loop(struct loop *loop)
{
    bool last;

    pthread_mutex_lock(&loop->lock);
    last = --loop->owners == 0;
    pthread_mutex_unlock(&loop->lock);
    if (!last)
        return;
    pthread_cond_destroy(&loop->idle);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

static void help(void *arg);

/*
 * Has one more thread make calls, because one waited while others are still to be made. The caller
 * has the lock, which is released meanwhile.
 */
static void call_waiter(struct loop *loop)
{
    loop->owners++;
    pthread_mutex_unlock(&loop->lock);
    if (!rfs_pool_submit_waiting(loop->pool, help, loop))
        drop_loop(loop); /* not the last: the caller runs, and owns */
    pthread_mutex_lock(&loop->lock);
}

static void run_loop(struct loop *loop)
{
    struct rfs_wait wait = {0};

    pthread_mutex_lock(&loop->lock);
    while (loop->next < loop->n && loop->result == 0) {
        const size_t i = loop->next++;
        int result;

        loop->running++;
        pthread_mutex_unlock(&loop->lock);
        const unsigned before = loops_awaited;
        rfs_wait_begin(&wait);
        result = rfs_cancelled() ? -EINTR : loop->fn(loop->ctx, i);
        const bool waited = rfs_wait_end(&wait, RFS_WAIT_LEAST) > 0 && loops_awaited == before;
        pthread_mutex_lock(&loop->lock);
        if (result && (loop->result == 0 || i < loop->failed)) {
            loop->result = result;
            loop->failed = i;
        }
        if (waited && loop->next < loop->n && loop->result == 0)
            call_waiter(loop);
        if (--loop->running == 0)
            pthread_cond_signal(&loop->idle);
    }
    pthread_mutex_unlock(&loop->lock);
}

static void help(void *arg)
{
    struct loop *loop = arg;
    const struct rfs_cancel *before = rfs_cancel_enter(loop->cancel);

    run_loop(loop);
    rfs_cancel_enter(before);
    drop_loop(loop);
}

static int run_alone(size_t n, int (*fn)(void *ctx, size_t i), void *ctx)
{
    int result = 0;

    for (size_t i = 0; i < n && result == 0; i++)
        result = rfs_cancelled() ? -EINTR : fn(ctx, i);
    return result;
}

/* Queues helpers, beside other jobs: a few for each thread are enough to have all threads. */
static void call_helpers(struct rfs_pool *pool, struct loop *loop)
{
    const size_t limit = (size_t)pool->wanted * 4;
    const size_t most = pool->far ? RFS_POOL_WAITERS : pool->wanted;

    for (size_t i = 0; i < most && i + 1 < loop->n; i++) {
        pthread_mutex_lock(&loop->lock);
        loop->owners++;
        pthread_mutex_unlock(&loop->lock);
        if (!(pool->far ? rfs_pool_submit_waiting(pool, help, loop)
                        : rfs_pool_submit(pool, help, loop, limit))) {
            drop_loop(loop);
            return;
        }
    }
}

int rfs_pool_for(struct rfs_pool *pool, size_t n, int (*fn)(void *ctx, size_t i), void *ctx)
{
    struct loop *loop;
    int result;

    if (n < 2 || !pool || !(loop = calloc(1, sizeof *loop)))
        return run_alone(n, fn, ctx);
    pthread_mutex_init(&loop->lock, NULL);
    pthread_cond_init(&loop->idle, NULL);
    loop->pool = pool;
    loop->fn = fn;
    loop->ctx = ctx;
    loop->cancel = rfs_cancel_mine();
    loop->n = n;
    loop->owners = 1;
    call_helpers(pool, loop);
    run_loop(loop);
    pthread_mutex_lock(&loop->lock);
    loops_awaited += loop->running > 0;
    while (loop->running > 0)
        pthread_cond_wait(&loop->idle, &loop->lock);
    result = loop->result;
    pthread_mutex_unlock(&loop->lock);
    drop_loop(loop);
    return result;
}
