/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a mount's threads wait for requests. In read(2) they queue, and the one that has waited longest is woken,
 * even where its processor is busy assembling and another one is not. Here a few of them, the watchers, wait in
 * poll(2), which wakes all of these: the first one that a processor runs takes the request. The others are parked,
 * since waking each costs something, until no watcher is left.
 *
 * Threads: any, once it is opened. Its lock is a leaf lock, held for a few instructions.
 */
#ifndef RFS_MOUNT_CHANNEL_H
#define RFS_MOUNT_CHANNEL_H

#include "mount/fuse.h"

#include <pthread.h>
#include <semaphore.h>

struct rfs_channel {
    pthread_mutex_t lock; /* of watchers and parked */
    unsigned watchers;    /* with those that were just told to be */
    unsigned parked;
    sem_t turn; /* posted for each parked thread that is to watch */
};

void rfs_channel_init(struct rfs_channel *channel);
/* No thread may wait any more. */
void rfs_channel_destroy(struct rfs_channel *channel);

/*
 * From now on the threads of the SESSION, which is mounted and whose user data is a struct rfs_mount, wait in the
 * channel of that. 0 or -errno.
 */
int rfs_channel_open(struct fuse_session *session);

#endif
