/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns of threads that take pieces of work in order, work on them at once, and then add them in
 * that order to what belongs together, such as a checksum. A count says how much has been added.
 * A thread waits only for threads that work. Once one has failed, none waits any more.
 */
#pragma once

#include "base/error.h"

#include <pthread.h>

struct rfs_turns {
    pthread_mutex_t lock;   /* guards the rest, the counts, and which piece is next; a leaf lock */
    pthread_cond_t changed; /* a count has grown, a thread has failed, or what else users say */
    int failed;             /* the first -errno */
    struct rfs_error err;
};
#define RFS_TURNS                                                                                  \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER                     \
    }

/*
 * Calls WORK in THREADS threads, 1 or more; one of them is the caller's. Each takes pieces until
 * there are no more. Called once for each struct. Returns 0, or the first -errno with *err filled.
 */
int rfs_turns_run(struct rfs_turns *turns, unsigned threads,
                  int (*work)(void *ctx, struct rfs_error *err), void *ctx, struct rfs_error *err);

/* Waits until a count is AT. Returns 0, or -ECANCELED when a thread has failed. */
int rfs_turns_wait(struct rfs_turns *turns, const uint64_t *count, uint64_t at);
/* Adds to a count, and returns it. */
uint64_t rfs_turns_add(struct rfs_turns *turns, uint64_t *count, uint64_t n);
