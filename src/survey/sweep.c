/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/sweep.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/pages.h"
#include "base/turns.h"

struct run {
    const struct rfs_sweep *sweep;
    struct rfs_turns turns; /* its lock guards the next members */
    size_t item;            /* the item of the next piece */
    uint64_t at;            /* where that piece begins */
    uint64_t *folded;       /* [n] units */
};

/* ---- workers --------------------------------------------------------------------------------- */

static void worker_free(const struct rfs_sweep *sweep, struct rfs_sweep_worker *worker)
{
    if (!worker)
        return;
    for (unsigned side = 0; side < sweep->sides; side++) {
        rfs_pages_free(worker->bytes[side], RFS_SWEEP_PIECE);
        if (worker->slice)
            rfs_slice_free(&worker->slice[side]);
    }
    free(worker->slice);
    free(worker->own);
    free(worker);
}

static struct rfs_sweep_worker *worker_new(const struct rfs_sweep *sweep)
{
    struct rfs_sweep_worker *worker = calloc(1, sizeof *worker);

    if (!worker)
        return NULL;
    worker->of = SIZE_MAX;
    worker->own = calloc(1, sweep->own_bytes + 1);
    worker->slice = calloc(RFS_SWEEP_SIDES, sizeof *worker->slice);
    bool good = worker->own && worker->slice;
    for (unsigned side = 0; good && side < sweep->sides; side++)
        good = (worker->bytes[side] = rfs_pages_alloc(RFS_SWEEP_PIECE)) != NULL;
    if (good)
        return worker;
    worker_free(sweep, worker);
    return NULL;
}

static uint64_t unit_of(const struct rfs_sweep *sweep, size_t item, unsigned side)
{
    return sweep->unit ? sweep->unit(sweep->ctx, item, side) : 1;
}

/*
 * Returns the bytes that all sides read for so many units, for the progress; if sides have no units
 * of their own, those of the first side.
 */
static uint64_t bytes_of(const struct rfs_sweep *sweep, size_t item, uint64_t n)
{
    uint64_t sum = 0;

    for (unsigned side = 0; n > 0 && side < (sweep->unit ? sweep->sides : 1); side++)
        sum += n * unit_of(sweep, item, side);
    return sum;
}

/*
 * Returns the units of a piece: pieces begin at multiples of 1 MiB on each side, as the assembler's
 * do.
 */
static uint64_t step_of(const struct rfs_sweep *sweep, size_t item)
{
    uint64_t widest = sweep->unit ? 4 : 1;

    for (unsigned side = 0; sweep->unit && side < sweep->sides; side++)
        widest = rfs_max_u64(widest, unit_of(sweep, item, side));
    return RFS_SWEEP_PIECE / widest;
}

/* Reads the piece on each side that has it. */
static int fetch(const struct rfs_sweep *sweep, struct rfs_sweep_worker *worker,
                 const struct rfs_sweep_piece *piece, struct rfs_error *err)
{
    for (unsigned side = 0; side < sweep->sides && piece->n > 0; side++) {
        const struct rfs_tensor tensor = sweep->tensor(sweep->ctx, piece->item, side);
        if (!tensor.list)
            continue;
        const uint64_t unit = unit_of(sweep, piece->item, side);
        int rc = 0;
        if (worker->of != piece->item)
            rc = rfs_tensors_slice(tensor.list, tensor.i, &worker->slice[side]);
        if (rc)
            return rfs_fail(err, rc, RFS_OF(tensor.list->path, rfs_tensor_name(tensor)), NULL,
                            "cannot be read: %s", strerror(-rc));
        rc = rfs_tensor_read(tensor, &worker->slice[side], piece->begin * unit,
                             (size_t)(piece->n * unit), worker->bytes[side], err);
        if (rc)
            return rc;
    }
    worker->of = piece->item;
    return 0;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Takes the next piece. False when there is none left, or one has failed. */
static bool next(struct run *run, struct rfs_sweep_piece *piece)
{
    const struct rfs_sweep *sweep = run->sweep;

    RFS_LOCKED(&run->turns.lock);
    const bool more = run->turns.failed == 0 && run->item < sweep->n;
    if (more) {
        const uint64_t units = sweep->units(sweep->ctx, run->item);
        const uint64_t n = rfs_min_u64(step_of(sweep, run->item), units - run->at);
        *piece = (struct rfs_sweep_piece){run->item, run->at, n, run->at + n == units};
        run->at = piece->last ? 0 : run->at + n;
        run->item += piece->last;
    }
    return more;
}

static int do_piece(struct run *run, struct rfs_sweep_worker *worker,
                    const struct rfs_sweep_piece *piece, struct rfs_error *err)
{
    const struct rfs_sweep *sweep = run->sweep;
    uint64_t *folded = &run->folded[piece->item];

    memset(worker->own, 0, sweep->own_bytes);
    const int rc = fetch(sweep, worker, piece, err)
                       ?: sweep->work(sweep->ctx, worker, piece, err)
                       ?: rfs_turns_wait(&run->turns, folded, piece->begin)
                       ?: sweep->fold(sweep->ctx, worker, piece, err);
    if (rc)
        return rc;
    rfs_turns_add(&run->turns, folded, piece->n);
    rfs_progress_add(sweep->progress, bytes_of(sweep, piece->item, piece->n));
    if (piece->last)
        rfs_progress_file(sweep->progress);
    rfs_progress_tick(sweep->progress);
    return 0;
}

static int work(void *ctx, struct rfs_error *err)
{
    struct run *run = ctx;
    struct rfs_sweep_worker *worker = NULL;
    struct rfs_sweep_piece piece;
    int rc = 0;

    while (rc == 0 && next(run, &piece)) {
        if (!worker)
            worker = worker_new(run->sweep);
        rc = worker ? do_piece(run, worker, &piece, err) : rfs_fail_memory(err);
    }
    worker_free(run->sweep, worker);
    return rc;
}

int rfs_sweep_run(const struct rfs_sweep *sweep, unsigned threads, struct rfs_error *err)
{
    struct run run = {.sweep = sweep, .turns = RFS_TURNS};
    uint64_t all = 0;

    run.folded = calloc(sweep->n + 1, sizeof *run.folded);
    if (!run.folded)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < sweep->n; i++)
        all += bytes_of(sweep, i, sweep->units(sweep->ctx, i));
    rfs_progress_begin(sweep->progress, sweep->phase, all, sweep->n);
    const int rc = rfs_turns_run(&run.turns, threads, work, &run, err);
    rfs_progress_end(sweep->progress);
    free(run.folded);
    return rc;
}
