/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read-ahead: a short queue of pieces and a few threads that make them. A piece is taken hold of
 * when it is begun, not when it is queued, so that a reader never waits for a piece that no thread
 * works on.
 *
 * Gathering is worth all processors. Reading contiguous data only has to keep up with the answers,
 * which need a processor too: with one more thread on two processors it was slower, by a sixth.
 */
#include "assemble/ahead.h"

#include "assemble/band.h"
#include "assemble/internal.h"
#include "base/checked.h"

/* Below so many pieces of budget, those made ahead would push each other out. */
#define ROOM_PIECES 8
/* Contiguous ranges shorter than this are read as quickly on demand. */
#define PASSING_LEAST (RFS_PIECE / 4)
/* A reader that has read less may have what it wants before a band is made. */
#define BAND_LEAST (16 * RFS_PIECE)

/* One slice for all jobs of one call. */
struct rfs_shared_slice {
    atomic_uint owners;
    struct rfs_slice slice;
    struct rfs_slice beside; /* of the next tensor, or without blocks */
};

static void release(struct rfs_shared_slice *shared)
{
    if (atomic_fetch_sub(&shared->owners, 1) != 1)
        return;
    rfs_slice_free(&shared->slice);
    rfs_slice_free(&shared->beside);
    free(shared);
}

static bool is_for(const struct rfs_ahead_job *job, const struct rfs_slice *slice, uint64_t number)
{
    return job->number == number && job->slice->slice.id[0] == slice->id[0] &&
           job->slice->slice.id[1] == slice->id[1];
}

/* Takes job I out of the queue; the caller has the lock and now the share. */
static struct rfs_ahead_job take_job(struct rfs_assembler *assembler, unsigned i)
{
    const struct rfs_ahead_job job = assembler->queue[i];
    assembler->n_queued--;
    memmove(&assembler->queue[i], &assembler->queue[i + 1], (assembler->n_queued - i) * sizeof job);
    return job;
}

/* Position of the job in the queue, or n_queued. The caller has the lock. */
static unsigned find_job(const struct rfs_assembler *assembler, const struct rfs_slice *slice,
                         uint64_t number)
{
    unsigned i = 0;
    while (i < assembler->n_queued && !is_for(&assembler->queue[i], slice, number))
        i++;
    return i;
}

static void make(struct rfs_assembler *assembler, const struct rfs_ahead_job *job)
{
    const struct rfs_slice *slice = &job->slice->slice;
    bool made = false;
    /*
     * Failures are ignored here: they recur when the reader requests the piece. Contiguous bytes
     * are in no band.
     */
    if (job->passing ||
        !rfs_band_ahead(assembler, slice, &job->slice->beside, job->number, &made)) {
        struct rfs_piece *piece;
        made = rfs_piece_get(assembler, slice, job->number, RFS_WANT_ABSENT, job->passing,
                             &piece) == RFS_GOT_CLAIM;
        if (piece)
            rfs_cache_unpin(assembler->cache, piece);
    }
    release(job->slice);
    if (!made)
        return;
    pthread_mutex_lock(&assembler->lock);
    assembler->ahead++;
    pthread_mutex_unlock(&assembler->lock);
}

/* Makes pieces until none is queued. The assembler may be freed once the job is marked as done. */
static void run(void *arg)
{
    struct rfs_assembler *assembler = arg;
    pthread_mutex_lock(&assembler->lock);
    while (assembler->n_queued > 0) {
        const struct rfs_ahead_job job = take_job(assembler, 0);
        pthread_mutex_unlock(&assembler->lock);
        make(assembler, &job);
        pthread_mutex_lock(&assembler->lock);
    }
    assembler->n_runners--;
    pthread_cond_broadcast(&assembler->idle);
    pthread_mutex_unlock(&assembler->lock);
}

/* Drops the queued pieces. The caller has the lock. */
static void drop_queue(struct rfs_assembler *assembler)
{
    while (assembler->n_queued > 0)
        release(take_job(assembler, 0).slice);
}

static void enqueue(struct rfs_assembler *assembler, struct rfs_shared_slice *shared,
                    uint64_t number, bool passing)
{
    pthread_mutex_lock(&assembler->lock);
    const bool fine = assembler->n_queued < RFS_AHEAD_QUEUE &&
                      find_job(assembler, &shared->slice, number) == assembler->n_queued;
    const unsigned most =
        passing && assembler->runners > 1 ? assembler->runners - 1 : assembler->runners;
    const bool runner = fine && assembler->n_runners < most;
    if (fine) {
        atomic_fetch_add(&shared->owners, 1);
        assembler->queue[assembler->n_queued++] = (struct rfs_ahead_job){shared, number, passing};
    }
    assembler->n_runners += runner;
    pthread_mutex_unlock(&assembler->lock);
    if (!runner || rfs_pool_submit(assembler->pool, run, assembler, assembler->runners))
        return;
    pthread_mutex_lock(&assembler->lock);
    if (--assembler->n_runners == 0)
        drop_queue(assembler);
    pthread_cond_broadcast(&assembler->idle);
    pthread_mutex_unlock(&assembler->lock);
}

struct rfs_window rfs_windows_hull(const struct rfs_windows *windows)
{
    if (windows->kept.end == 0)
        return windows->lent;
    if (windows->lent.end == 0)
        return windows->kept;
    return (struct rfs_window){rfs_min_u64(windows->kept.begin, windows->lent.begin),
                               rfs_max_u64(windows->kept.end, windows->lent.end)};
}

/* Whether a piece is to be made, and in *passing whether for one reader only. */
static bool is_wanted(const struct rfs_slice *slice, uint64_t at, uint64_t size,
                      const struct rfs_windows *windows, bool *passing)
{
    *passing = !rfs_gather_needed(slice, at, at + size);
    if (*passing)
        return size >= PASSING_LEAST && windows->lent.begin <= at && at + size <= windows->lent.end;
    return windows->kept.begin <= at && at < windows->kept.end;
}

void rfs_assemble_ahead(struct rfs_assembler *assembler, struct rfs_slice *slice,
                        struct rfs_slice *beside, const struct rfs_windows *windows)
{
    struct rfs_shared_slice *shared = NULL;
    const struct rfs_window hull = rfs_windows_hull(windows);
    const uint64_t end = rfs_min_u64(hull.end, slice->bytes);
    if (hull.begin < end && assembler->pool && assembler->budget >= ROOM_PIECES * RFS_PIECE)
        shared = malloc(sizeof *shared);
    if (!shared) {
        rfs_slice_free(slice);
        rfs_slice_free(beside);
        return;
    }
    atomic_init(&shared->owners, 1);
    shared->slice = *slice;
    shared->beside = *beside;
    *slice = *beside = (struct rfs_slice){0};
    /* The reader is in the middle of a piece that begins before: it gets that by itself. */
    for (uint64_t number = rfs_pieces_to(hull.begin); number * RFS_PIECE < end; number++) {
        const uint64_t at = number * RFS_PIECE;
        bool passing;
        if (is_wanted(&shared->slice, at, rfs_min_u64(RFS_PIECE, shared->slice.bytes - at), windows,
                      &passing))
            enqueue(assembler, shared, number, passing);
    }
    /* A reader of whole bands needs the next one as soon as this one is made. */
    const uint64_t next = windows->bytes >= BAND_LEAST
                              ? rfs_band_next(&shared->slice, rfs_band_most(assembler->budget),
                                              hull.begin / RFS_PIECE)
                              : UINT64_MAX;
    if (next != UINT64_MAX && windows->kept.end > 0)
        enqueue(assembler, shared, next, false);
    release(shared);
}

void rfs_ahead_cancel(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                      uint64_t number)
{
    struct rfs_shared_slice *shared = NULL;
    pthread_mutex_lock(&assembler->lock);
    const unsigned i = find_job(assembler, slice, number);
    if (i < assembler->n_queued)
        shared = take_job(assembler, i).slice;
    pthread_mutex_unlock(&assembler->lock);
    if (shared)
        release(shared);
}

void rfs_ahead_drop(struct rfs_assembler *assembler)
{
    pthread_mutex_lock(&assembler->lock);
    drop_queue(assembler);
    pthread_mutex_unlock(&assembler->lock);
}

void rfs_ahead_stop(struct rfs_assembler *assembler)
{
    pthread_mutex_lock(&assembler->lock);
    drop_queue(assembler);
    while (assembler->n_runners > 0)
        pthread_cond_wait(&assembler->idle, &assembler->lock);
    pthread_mutex_unlock(&assembler->lock);
}
