/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object that one thread makes at its first use, while others that need it wait. The owner has
 * the lock and the condition (of rfs_cancel_init_cond), which may serve other things, too; nothing
 * is held while it is made.
 *
 *     pthread_mutex_lock(&lock);
 *     int rc = rfs_once_begin(&once, &done, &lock);
 *     if (rc == 1) {
 *         pthread_mutex_unlock(&lock);
 *         rc = make(&thing);
 *         pthread_mutex_lock(&lock);
 *         rfs_once_end(&once, &done, rc == 0);
 *     }
 *     pthread_mutex_unlock(&lock);
 */
#pragma once

#include "base/std.h"

#include <pthread.h>

/* Under the owner's lock; {0} to begin with. */
struct rfs_once {
    enum { RFS_ONCE_NOT_YET, RFS_ONCE_UNDER_WAY, RFS_ONCE_MADE } state;
};

/*
 * Under LOCK. 0: it is made. 1: the caller is to make it, and to call rfs_once_end. -EINTR: the
 * caller's work was given up while another thread made it (base/cancel.h).
 */
int rfs_once_begin(struct rfs_once *once, pthread_cond_t *done, pthread_mutex_t *lock);
/* Under the same lock. Unless it was MADE, the next thread tries again. */
void rfs_once_end(struct rfs_once *once, pthread_cond_t *done, bool made);
