/* SPDX-License-Identifier: Apache-2.0 */
/* The assembler, for those that answer requests and those that make bands. */
#pragma once

#include "assemble/assembler.h"
#include "assemble/cache.h"
#include "assemble/gather.h"
#include "assemble/prefetch.h"

#include <pthread.h>

/* Memory for a thread's source windows, or its bytes to cast, which the next thread takes again. */
struct rfs_scratch {
    struct rfs_scratch *next;
    _Alignas(64) unsigned char bytes[RFS_SCRATCH_ROOM];
};

/* The most pieces that wait to be made ahead. */
#define RFS_AHEAD_QUEUE 8

struct rfs_ahead_job {
    struct rfs_shared_slice *slice; /* a share of it */
    uint64_t number;
    bool passing;
    /* Once it is begun: */
    atomic_bool passed;         /* its reader has reached the piece: it is no longer claimed */
    struct rfs_ahead_job *next; /* in the list of those that are begun */
};

struct rfs_assembler {
    struct rfs_cache *cache; /* has its own lock; never taken together with ours */
    struct rfs_files *files;
    struct rfs_prefetch *prefetch; /* has its own lock; never taken together with ours */
    uint64_t budget;
    struct rfs_pool *pool;
    unsigned runners;            /* most pool jobs that may work at once; constant */
    pthread_mutex_t lock;        /* guards the rest; a leaf lock */
    pthread_cond_t idle;         /* broadcast when a runner ended */
    struct rfs_scratch *scratch; /* free ones */
    struct rfs_ahead_job queue[RFS_AHEAD_QUEUE]; /* the oldest first */
    unsigned n_queued;
    struct rfs_ahead_job *begun; /* jobs that the runners are at; theirs */
    unsigned n_runners;          /* pool jobs that empty the queue */
    uint64_t ahead;              /* pieces made ahead */
};

/* Takes a scratch, to be given back; returns NULL when out of memory. */
struct rfs_scratch *rfs_scratch_take(struct rfs_assembler *assembler);
void rfs_scratch_give(struct rfs_assembler *assembler, struct rfs_scratch *scratch);

/* Returns how many pieces the bytes before AT of a slice are in. */
static inline uint64_t rfs_assemble_pieces(uint64_t at)
{
    return at / RFS_PIECE + (at % RFS_PIECE > 0);
}
/*
 * Does what rfs_cache_get does for a piece of the slice. A claimed piece also gets the list of the
 * source files that it is made from.
 */
int rfs_assemble_claim(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                       uint64_t number, enum rfs_cache_want want, const atomic_bool *passed,
                       struct rfs_cache_piece **out);
