/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that is cancelled before it is done.
 *
 * A thread works for one struct rfs_cancel at a time, or for none. Once that is cancelled,
 * everything that takes long soon ends with -EINTR: reads of a source, long loops and waits for
 * another thread's work check it. Helping threads of the pool work for the same struct as their
 * caller.
 *
 * Cancelled work counts as never begun: it is not remembered as a failure, and other threads that
 * wait for it do it themselves. A system call that is under way is not ended.
 */
#pragma once

#include "base/std.h"

#include <pthread.h>
#include <stdatomic.h>

struct rfs_cancel {
    atomic_bool now;                /* the work is cancelled; set and unset by any thread */
    const struct rfs_cancel *above; /* cancels this, too; borrowed; constant; or NULL */
};

/*
 * Makes the calling thread work for CANCEL from now on, which it borrows; NULL: for none. Returns
 * what it worked for.
 */
const struct rfs_cancel *rfs_cancel_enter(const struct rfs_cancel *cancel);

/* Returns the struct that the calling thread works for; NULL: it cannot be cancelled. */
const struct rfs_cancel *rfs_cancel_mine(void);

/* Returns whether the calling thread's work is cancelled. No system call. */
bool rfs_cancelled(void);

/* Makes a condition for rfs_cancel_wait. 0 or -errno. */
int rfs_cancel_init_cond(pthread_cond_t *cond);

/*
 * Waits as pthread_cond_wait does. Returns 0, when the caller must check its condition again, or
 * -EINTR when its work was cancelled. Cancelling wakes no waiter: waiters check by themselves, some
 * times a second.
 */
int rfs_cancel_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
