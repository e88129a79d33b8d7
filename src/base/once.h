/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that are made at their first use, and then only read.
 *
 * struct rfs_once is for an object that costs too much to make twice: one thread makes it, while
 * others wait for it. The owner has the lock and the condition (of rfs_cancel_init_cond), and may
 * use them for other things, too. The maker holds no lock.
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
 *
 * RFS_PUBLISH is for pointers that are read without a lock, and are NULL until then: several
 * threads may make the object at once, and the first to publish wins.
 *
 * Orders: what a thread writes before a release store is seen by each thread whose acquire load
 * gives what it stored, also on processors that reorder stores, such as those of aarch64.
 * RFS_PUBLISH releases, and RFS_PUBLISHED acquires. Other release stores name their acquire loads.
 */
#pragma once

#include "base/cancel.h"

/* The state of one object, under the owner's lock; begins as {0}. */
struct rfs_once {
    enum { RFS_ONCE_NOT_YET, RFS_ONCE_UNDER_WAY, RFS_ONCE_MADE } state;
};

/*
 * Waits, under LOCK, while another thread makes the object. 0: it is made. 1: the caller is to make
 * it, and to call rfs_once_end. -EINTR: the caller's work was given up meanwhile (base/cancel.h).
 */
static inline int rfs_once_begin(struct rfs_once *once, pthread_cond_t *done, pthread_mutex_t *lock)
{
    int waited = 0;

    while (once->state == RFS_ONCE_UNDER_WAY && waited == 0)
        waited = rfs_cancel_wait(done, lock);
    if (once->state != RFS_ONCE_NOT_YET)
        return once->state == RFS_ONCE_MADE ? 0 : waited;
    once->state = RFS_ONCE_UNDER_WAY;
    return 1;
}

/* Tells the other threads, under the same lock. Unless it was MADE, the next thread tries again. */
static inline void rfs_once_end(struct rfs_once *once, pthread_cond_t *done, bool made)
{
    once->state = made ? RFS_ONCE_MADE : RFS_ONCE_NOT_YET;
    pthread_cond_broadcast(done);
}

/* Evaluates to the published object, or NULL. */
#define RFS_PUBLISHED(slot) atomic_load_explicit((slot), memory_order_acquire)

/*
 * Publishes FRESH at SLOT, an _Atomic pointer, unless it is set already: then FRESH is dropped by
 * DROP(fresh). Evaluates to the published pointer.
 */
#define RFS_PUBLISH(slot, fresh, drop)                                                             \
    __extension__({                                                                                \
        __typeof__(&*(fresh)) publish_mine = (fresh), publish_there = NULL;                        \
        if (atomic_compare_exchange_strong((slot), &publish_there, publish_mine))                  \
            publish_there = publish_mine;                                                          \
        else                                                                                       \
            drop(publish_mine);                                                                    \
        publish_there;                                                                             \
    })
