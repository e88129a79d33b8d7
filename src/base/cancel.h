/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that is given up before it is done.
 *
 * A thread works for one struct rfs_cancel at a time, or for none. Where that is given up, everything that takes long
 * ends with -EINTR soon: each read of a source asks first, and so do long loops and whoever waits for another
 * thread's work. Threads of the pool that help work for what their caller works for.
 *
 * What is given up is as if it had never begun: it is not kept as a failure, and others who wait for the same do it
 * themselves. A system call that is under way is not ended.
 */
#ifndef RFS_BASE_CANCEL_H
#define RFS_BASE_CANCEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct rfs_cancel {
    atomic_bool now;                /* it is given up; set and unset by any thread */
    const struct rfs_cancel *above; /* what is given up with that; borrowed; constant; or NULL */
};

/* The calling thread works for CANCEL from now on, which it borrows; NULL: for none. Returns what it worked for. */
const struct rfs_cancel *rfs_cancel_enter(const struct rfs_cancel *cancel);

/* What the calling thread works for; NULL: nothing that can be given up. */
const struct rfs_cancel *rfs_cancel_mine(void);

/* Whether what the calling thread works for is given up. No system call. */
bool rfs_cancelled(void);

/* A condition for rfs_cancel_wait. 0 or -errno. */
int rfs_cancel_init_cond(pthread_cond_t *cond);

/*
 * As pthread_cond_wait. Returns 0, when the caller looks again at what it waits for, or -EINTR when its work was given up.
 * Nobody wakes it for that: it looks by itself, some times a second.
 */
int rfs_cancel_wait(pthread_cond_t *cond, pthread_mutex_t *lock);

#endif
