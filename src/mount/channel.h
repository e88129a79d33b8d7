/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a mount's threads wait for requests. In read(2) they queue, and the one that has waited
 * longest is woken, even where its processor is busy assembling and another one is not. Here a few
 * of them, the watchers, wait in poll(2), which wakes all of these: the first one that a processor
 * runs takes the request. The others are parked, since waking each costs something, until no
 * watcher is left.
 *
 * While all threads are busy the guard (guard.h) takes requests. Those that may wait for sources
 * are held here, and go to the next thread that is free, in the order in which they came, unless
 * their callers are killed before.
 *
 * Threads: any, once it is opened. Its lock is a leaf lock, held for a few instructions.
 */
#pragma once

#include "base/std.h"
#include "mount/fuse.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

struct rfs_held_request;

struct rfs_channel {
    pthread_mutex_t lock; /* of all but turn and bell */
    unsigned watchers;    /* with those that were just made so */
    unsigned parked;
    uint64_t turns; /* how often a thread came to wait */
    struct rfs_held_request *first, **last;
    bool closed;
    sem_t turn; /* posted for each parked thread that is to watch */
    /* descriptor; readable while something is held, and once it is closed: wakes watchers; or -1 */
    int bell;
    atomic_bool begun; /* the first request, INIT, was answered */
    void *room;        /* owned; where the guard reads requests to; or NULL */
};

/* 0 or -errno. */
int rfs_channel_init(struct rfs_channel *channel);
/* No thread may wait any more. */
void rfs_channel_destroy(struct rfs_channel *channel);

/*
 * From now on the threads of the SESSION, which is mounted and whose user data is a struct
 * rfs_mount, wait in the channel of that. 0 or -errno.
 */
int rfs_channel_open(struct fuse_session *session);

/* No thread waits any more: as if each had got a signal. */
void rfs_channel_close(struct rfs_channel *channel);

/* How often a thread came to wait for requests so far, and whether none waits now. */
uint64_t rfs_channel_turns(struct rfs_channel *channel);
bool rfs_channel_is_unwatched(struct rfs_channel *channel);

/* ---- for the guard ---- */

/*
 * Takes one request of the kernel, if there is any while no thread waits. Notes signals to the
 * callers of held requests. *buf is the channel's, until the next call. 1, 0 for none, or -ENODEV
 * when the mount is gone.
 */
int rfs_channel_take(struct rfs_channel *channel, struct fuse_session *session,
                     struct fuse_buf *buf);
/* Holds the request that was taken last. */
void rfs_channel_hold(struct rfs_channel *channel, struct fuse_session *session,
                      const struct fuse_buf *buf);
/*
 * Gives up those held whose callers are about to end (request.h). Whether there are others whose
 * callers got a signal.
 */
bool rfs_channel_look(struct rfs_channel *channel, struct fuse_session *session);
