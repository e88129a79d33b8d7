/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cancel.h"

#include <time.h>

/* The longest time until a waiter sees that its work was given up; ns. */
#define LOOK_NS 50000000L

static _Thread_local const struct rfs_cancel *mine;

const struct rfs_cancel *rfs_cancel_enter(const struct rfs_cancel *cancel)
{
    const struct rfs_cancel *before = mine;

    mine = cancel;
    return before;
}

const struct rfs_cancel *rfs_cancel_mine(void)
{
    return mine;
}

bool rfs_cancelled(void)
{
    const struct rfs_cancel *cancel = mine;

    while (cancel && !atomic_load_explicit(&cancel->now, memory_order_relaxed))
        cancel = cancel->above;
    return cancel != NULL;
}

int rfs_cancel_init_cond(pthread_cond_t *cond)
{
    pthread_condattr_t clock;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    const int rc = pthread_cond_init(cond, &clock);
    pthread_condattr_destroy(&clock);
    return -rc;
}

int rfs_cancel_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    struct timespec until;

    if (!mine) {
        pthread_cond_wait(cond, lock);
        return 0;
    }
    if (rfs_cancelled())
        return -EINTR;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(cond, lock, &until);
    return rfs_cancelled() ? -EINTR : 0;
}
