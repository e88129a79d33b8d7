/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/sweep.h"

#include "base/checked.h"
#include "base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct run {
    const struct rfs_sweep *sweep;
    pthread_mutex_t lock; /* of what follows; a leaf lock */
    pthread_cond_t turn;  /* somebody's turn has come, or it is over */
    size_t item;          /* of the next piece, and */
    uint64_t at;          /* where that begins */
    uint64_t *folded;     /* [n] units */
    int failed;
    struct rfs_error *err;
};

static void fail(struct run *run, int code, const struct rfs_error *err)
{
    pthread_mutex_lock(&run->lock);
    if (run->failed == 0) {
        run->failed = code;
        if (run->err)
            *run->err = *err;
    }
    pthread_cond_broadcast(&run->turn);
    pthread_mutex_unlock(&run->lock);
}

/* False when there is none left, or one has failed. */
static bool next(struct run *run, struct rfs_sweep_piece *piece)
{
    const struct rfs_sweep *sweep = run->sweep;

    pthread_mutex_lock(&run->lock);
    const bool more = run->failed == 0 && run->item < sweep->n;
    if (more) {
        const uint64_t units = sweep->units(sweep->ctx, run->item);
        const uint64_t n = rfs_min_u64(sweep->step(sweep->ctx, run->item), units - run->at);
        *piece = (struct rfs_sweep_piece){run->item, run->at, n, run->at + n == units};
        run->at = piece->last ? 0 : run->at + n;
        run->item += piece->last;
    }
    pthread_mutex_unlock(&run->lock);
    return more;
}

/* False when one has failed meanwhile. */
static bool wait_turn(struct run *run, const struct rfs_sweep_piece *piece)
{
    pthread_mutex_lock(&run->lock);
    while (run->failed == 0 && run->folded[piece->item] != piece->begin)
        pthread_cond_wait(&run->turn, &run->lock);
    const bool good = run->failed == 0;
    pthread_mutex_unlock(&run->lock);
    return good;
}

static void end_turn(struct run *run, const struct rfs_sweep_piece *piece)
{
    pthread_mutex_lock(&run->lock);
    run->folded[piece->item] = piece->begin + piece->n;
    pthread_cond_broadcast(&run->turn);
    pthread_mutex_unlock(&run->lock);
}

static int do_piece(struct run *run, void *worker, const struct rfs_sweep_piece *piece,
                    struct rfs_error *err)
{
    const struct rfs_sweep *sweep = run->sweep;
    int rc = sweep->work(sweep->ctx, worker, piece, err);

    if (rc || !wait_turn(run, piece))
        return rc;
    rc = sweep->fold(sweep->ctx, worker, piece, err);
    if (rc)
        return rc;
    end_turn(run, piece);
    rfs_progress_add(sweep->progress, sweep->bytes(sweep->ctx, piece->item, piece->n));
    if (piece->last)
        rfs_progress_file(sweep->progress);
    rfs_progress_tick(sweep->progress);
    return 0;
}

static int work(void *ctx, size_t number)
{
    struct run *run = ctx;
    const struct rfs_sweep *sweep = run->sweep;
    struct rfs_sweep_piece piece;
    struct rfs_error err = {0};
    int rc = 0;

    (void)number;
    void *worker = NULL;
    while (rc == 0 && next(run, &piece)) {
        if (!worker)
            worker = sweep->worker(sweep->ctx);
        rc = worker ? do_piece(run, worker, &piece, &err) : rfs_fail_memory(&err);
        if (rc)
            fail(run, rc, &err);
    }
    if (worker)
        sweep->worker_free(sweep->ctx, worker);
    return 0;
}

int rfs_sweep_run(const struct rfs_sweep *sweep, unsigned threads, struct rfs_error *err)
{
    struct run run = {.sweep = sweep, .err = err};
    struct rfs_pool *pool = rfs_pool_new(threads - 1);

    run.folded = calloc(sweep->n + 1, sizeof *run.folded);
    if (!pool || !run.folded) {
        free(run.folded);
        rfs_pool_free(pool);
        return rfs_fail_memory(err);
    }
    pthread_mutex_init(&run.lock, NULL);
    pthread_cond_init(&run.turn, NULL);
    rfs_pool_for(pool, threads, work, &run);
    rfs_pool_free(pool);
    pthread_cond_destroy(&run.turn);
    pthread_mutex_destroy(&run.lock);
    free(run.folded);
    return run.failed;
}
