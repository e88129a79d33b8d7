/* SPDX-License-Identifier: Apache-2.0 */
#include "base/share.h"

#include "base/cancel.h"

#include <pthread.h>

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* a leaf lock; guards the variables below */
static pthread_cond_t given;
static pthread_once_t once = PTHREAD_ONCE_INIT; /* of given */
static size_t used;

static void make_given(void)
{
    rfs_cancel_init_cond(&given);
}

int rfs_share_take(size_t *share, size_t bytes)
{
    int rc = 0;

    pthread_once(&once, make_given);
    pthread_mutex_lock(&lock);
    while (rc == 0 && used > 0 && (bytes > RFS_SHARE_BYTES || used > RFS_SHARE_BYTES - bytes))
        rc = rfs_cancel_wait(&given, &lock);
    if (rc == 0) {
        *share = bytes;
        used += bytes; /* of one that is larger, or a sum that is not: no overflow */
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

void rfs_share_give(size_t *share)
{
    if (*share == 0)
        return;
    pthread_mutex_lock(&lock);
    used -= *share;
    *share = 0;
    pthread_cond_broadcast(&given);
    pthread_mutex_unlock(&lock);
}
