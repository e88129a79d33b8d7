/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read-ahead: a job for each piece. A job takes hold of its piece when it starts, not when it is
 * queued, so that a reader never waits for a job that no thread runs.
 */
#include "assemble/ahead.h"

#include "assemble/internal.h"
#include "base/checked.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Below so many pieces of budget, those made ahead would push each other out. */
#define ROOM_PIECES 8

/* One slice for the jobs of one call. */
struct shared {
    atomic_uint owners;
    struct rfs_slice slice;
};

struct ahead {
    struct rfs_assembler *assembler;
    struct shared *shared; /* one share of it */
    uint64_t number;
};

static void release(struct shared *shared)
{
    if (atomic_fetch_sub(&shared->owners, 1) != 1)
        return;
    rfs_slice_free(&shared->slice);
    free(shared);
}

static bool same_piece(const struct rfs_piece_key *key, const struct rfs_slice *slice,
                       uint64_t number)
{
    return key->id[0] == slice->id[0] && key->id[1] == slice->id[1] && key->number == number;
}

/* False when the piece is under way already, or jobs enough are. */
static bool enlist(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t number)
{
    pthread_mutex_lock(&assembler->lock);
    bool fine = assembler->n_jobs < RFS_AHEAD_JOBS;
    for (unsigned i = 0; i < assembler->n_jobs; i++)
        fine = fine && !same_piece(&assembler->jobs[i], slice, number);
    if (fine)
        assembler->jobs[assembler->n_jobs++] =
            (struct rfs_piece_key){{slice->id[0], slice->id[1]}, number};
    pthread_mutex_unlock(&assembler->lock);
    return fine;
}

/* The last thing that a job does: the assembler may be freed from then on. */
static void strike(struct rfs_assembler *assembler, const struct rfs_piece_key *key, bool made)
{
    pthread_mutex_lock(&assembler->lock);
    unsigned i = 0;
    while (assembler->jobs[i].id[0] != key->id[0] || assembler->jobs[i].id[1] != key->id[1] ||
           assembler->jobs[i].number != key->number)
        i++;
    assembler->jobs[i] = assembler->jobs[--assembler->n_jobs];
    assembler->ahead += made;
    pthread_cond_broadcast(&assembler->idle);
    pthread_mutex_unlock(&assembler->lock);
}

static void run(void *arg)
{
    struct ahead *ahead = arg;
    struct rfs_assembler *assembler = ahead->assembler;
    const struct rfs_slice *slice = &ahead->shared->slice;
    const struct rfs_piece_key key = {{slice->id[0], slice->id[1]}, ahead->number};
    struct rfs_piece *piece;
    /* A failure is the reader's to meet: it comes again when the piece is asked for. */
    const int got = rfs_piece_get(assembler, slice, ahead->number, RFS_WANT_ABSENT, &piece);
    if (piece)
        rfs_cache_unpin(assembler->cache, piece);
    release(ahead->shared);
    free(ahead);
    strike(assembler, &key, got == RFS_GOT_FRESH);
}

static void start(struct rfs_assembler *assembler, struct shared *shared, uint64_t number)
{
    const struct rfs_piece_key key = {{shared->slice.id[0], shared->slice.id[1]}, number};
    if (!enlist(assembler, &shared->slice, number))
        return;
    struct ahead *ahead = malloc(sizeof *ahead);
    if (ahead) {
        *ahead = (struct ahead){assembler, shared, number};
        atomic_fetch_add(&shared->owners, 1);
        if (rfs_pool_submit(assembler->pool, run, ahead, RFS_AHEAD_JOBS))
            return;
        release(shared);
        free(ahead);
    }
    strike(assembler, &key, false);
}

void rfs_assemble_ahead(struct rfs_assembler *assembler, struct rfs_slice *slice, uint64_t begin,
                        uint64_t end)
{
    struct shared *shared = NULL;
    end = rfs_min_u64(end, slice->bytes);
    if (begin < end && assembler->pool && assembler->budget >= ROOM_PIECES * RFS_PIECE)
        shared = malloc(sizeof *shared);
    if (!shared) {
        rfs_slice_free(slice);
        return;
    }
    atomic_init(&shared->owners, 1);
    shared->slice = *slice;
    *slice = (struct rfs_slice){0};
    for (uint64_t number = begin / RFS_PIECE; number * RFS_PIECE < end; number++) {
        const uint64_t at = number * RFS_PIECE;
        const uint64_t size = rfs_min_u64(RFS_PIECE, shared->slice.bytes - at);
        if (rfs_gather_needed(&shared->slice, at, at + size))
            start(assembler, shared, number);
    }
    release(shared);
}

void rfs_ahead_wait(struct rfs_assembler *assembler)
{
    pthread_mutex_lock(&assembler->lock);
    while (assembler->n_jobs > 0)
        pthread_cond_wait(&assembler->idle, &assembler->lock);
    pthread_mutex_unlock(&assembler->lock);
}
