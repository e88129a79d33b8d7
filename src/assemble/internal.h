/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room only: shared by its files. */
#pragma once

#include "assemble/assembler.h"
#include "assemble/cache.h"
#include "assemble/gather.h"
#include "assemble/prefetch.h"

#include <pthread.h>

/* A thread's source windows, or its bytes to convert; kept for the next thread. */
struct scratch {
    struct scratch *next;
    _Alignas(64) unsigned char bytes[RFS_SCRATCH_ROOM];
};

/* Pieces that wait to be made ahead. */
#define RFS_AHEAD_QUEUE 8

struct rfs_ahead_job {
    struct rfs_shared_slice *slice; /* one share of it */
    uint64_t number;
    bool passing;
};

struct rfs_assembler {
    struct rfs_cache *cache; /* has its own lock; never taken together with ours */
    struct rfs_files *files;
    struct rfs_secret *secret;     /* the owner of guarded memory; NULL: sources are plain */
    struct rfs_prefetch *prefetch; /* has its own lock, likewise */
    uint64_t budget;
    struct rfs_pool *pool;
    unsigned runners;     /* how many may work at once; constant */
    pthread_mutex_t lock; /* of the rest; a leaf lock */
    pthread_cond_t idle;  /* a runner ended */
    struct scratch *scratch;
    struct rfs_ahead_job queue[RFS_AHEAD_QUEUE]; /* the oldest first */
    unsigned n_queued;
    unsigned n_runners; /* pool jobs that empty the queue */
    uint64_t ahead;     /* pieces made ahead */
};

/* To be given back; NULL when out of memory. */
struct scratch *rfs_scratch_take(struct rfs_assembler *assembler);
void rfs_scratch_give(struct rfs_assembler *assembler, struct scratch *scratch);

/*
 * Bytes [begin, end) of the slice from its sources. AHEAD: no request depends on them yet, so a
 * failed read does not count as a failure of its file. 0 or -errno; the bytes are valid only when
 * 0, and PROOF is as for rfs_gather.
 */
int rfs_fetch(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t begin,
              uint64_t end, unsigned char *dst, enum rfs_gather_proof proof, bool ahead);
/* How many pieces the bytes before AT of a slice are in. */
static inline uint64_t rfs_pieces_to(uint64_t at)
{
    return at / RFS_PIECE + (at % RFS_PIECE > 0);
}
/* The files that the piece's bytes come from, each once. */
void rfs_piece_note_files(struct rfs_piece *piece, const struct rfs_slice *slice, uint64_t begin);
/*
 * They are about to be fetched, by one or more calls: what slow sources have of them is read at
 * once.
 */
void rfs_fetch_soon(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t begin,
                    uint64_t end);

/*
 * A piece of the slice, pinned: RFS_GOT_CLAIM if it was made here, RFS_GOT_PIECE if by another
 * thread; RFS_GOT_NOTHING when it is not to be kept; or -errno. Its bytes are valid only if its
 * files are found unchanged afterwards, whichever thread made it; so the maker need not check. A
 * piece that is made here is passing, or not.
 */
int rfs_piece_get(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t number,
                  enum rfs_cache_want want, bool passing, struct rfs_piece **out);
