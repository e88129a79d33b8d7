/* SPDX-License-Identifier: Apache-2.0 */
#include "base/once.h"

#include "base/cancel.h"

int rfs_once_begin(struct rfs_once *once, pthread_cond_t *done, pthread_mutex_t *lock)
{
    int waited = 0;

    while (once->state == RFS_ONCE_UNDER_WAY && waited == 0)
        waited = rfs_cancel_wait(done, lock);
    if (once->state != RFS_ONCE_NOT_YET)
        return once->state == RFS_ONCE_MADE ? 0 : waited;
    once->state = RFS_ONCE_UNDER_WAY;
    return 1;
}

void rfs_once_end(struct rfs_once *once, pthread_cond_t *done, bool made)
{
    once->state = made ? RFS_ONCE_MADE : RFS_ONCE_NOT_YET;
    pthread_cond_broadcast(done);
}
