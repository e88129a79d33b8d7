/* SPDX-License-Identifier: Apache-2.0 */
#include "base/turns.h"

#include "base/pool.h"

struct call {
    struct rfs_turns *turns;
    int (*work)(void *ctx, struct rfs_error *err);
    void *ctx;
};

static int call_one(void *ctx, size_t number)
{
    const struct call *call = ctx;
    struct rfs_turns *turns = call->turns;
    struct rfs_error err = {0};
    const int rc = call->work(call->ctx, &err);

    (void)number;
    pthread_mutex_lock(&turns->lock);
    if (rc && !turns->failed) {
        turns->failed = rc;
        turns->err = err;
    }
    pthread_cond_broadcast(&turns->changed);
    pthread_mutex_unlock(&turns->lock);
    return rc;
}

int rfs_turns_run(struct rfs_turns *turns, unsigned threads,
                  int (*work)(void *ctx, struct rfs_error *err), void *ctx, struct rfs_error *err)
{
    struct rfs_pool *pool = rfs_pool_new(threads - 1);

    if (!pool)
        return rfs_fail_memory(err);
    const int rc = rfs_pool_for(pool, threads, call_one, &(struct call){turns, work, ctx});
    rfs_pool_free(pool);
    if (rc && !turns->failed)
        turns->failed = rfs_fail(&turns->err, rc, RFS_NOWHERE, NULL, "%s", strerror(-rc));
    if (turns->failed && err)
        *err = turns->err;
    return turns->failed;
}

int rfs_turns_wait(struct rfs_turns *turns, const uint64_t *count, uint64_t at)
{
    pthread_mutex_lock(&turns->lock);
    while (!turns->failed && *count != at)
        pthread_cond_wait(&turns->changed, &turns->lock);
    const int rc = turns->failed ? -ECANCELED : 0;
    pthread_mutex_unlock(&turns->lock);
    return rc;
}

uint64_t rfs_turns_add(struct rfs_turns *turns, uint64_t *count, uint64_t n)
{
    pthread_mutex_lock(&turns->lock);
    *count += n;
    const uint64_t now = *count;
    pthread_cond_broadcast(&turns->changed);
    pthread_mutex_unlock(&turns->lock);
    return now;
}
