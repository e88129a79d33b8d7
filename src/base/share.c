/* SPDX-License-Identifier: Apache-2.0 */
#include "base/share.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf lock, of what follows */
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static size_t used;

void rfs_share_take(size_t *share, size_t bytes)
{
    pthread_mutex_lock(&lock);
    while (used > 0 && (bytes > RFS_SHARE_BYTES || used > RFS_SHARE_BYTES - bytes))
        pthread_cond_wait(&given, &lock);
    *share = bytes;
    used += bytes; /* of one that is larger, or a sum that is not: no overflow */
    pthread_mutex_unlock(&lock);
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
