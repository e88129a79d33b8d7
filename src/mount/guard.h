/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: a thread that waits for nothing but the kernel and the clock, so that a mount can't
 * hang. It
 *
 *  - takes the signals that end the mount, which are blocked in all other threads;
 *  - gives up requests whose callers are killed (request.h);
 *  - takes the kernel's requests while all threads are busy (one, with -s) and nobody has taken any
 *    for a while: what waits for no source it answers, the rest is held until a thread is free
 *    (channel.h). So the kernel's word that a caller was killed, or that the mount is gone, is
 *    always heard, and folders are listed whatever the sources do;
 *  - when the mount ends, cancels what is under way; and if that has not ended within
 *    RFS_GUARD_PATIENCE, since a system call on a source hangs, unmounts and ends the process.
 *
 * It sleeps while some thread waits for requests: a mount that is idle never wakes.
 */
#ifndef RFS_MOUNT_GUARD_H
#define RFS_MOUNT_GUARD_H

#include "base/error.h"
#include "mount/fuse.h"

#include <stdbool.h>
#include <stdint.h>

#define RFS_GUARD_PATIENCE 1500 /* milliseconds */
#define RFS_GUARD_SAVING                                                                           \
    10000 /* more, for what is kept for the next mount, once this one is gone */

struct rfs_mount;

/*
 * Blocks the signals that the guard takes, in the calling thread and those that it starts: those
 * that end a program, but for ignored ones, and SIGHUP, which ends a mount in the foreground. Not
 * before there is a mount, whose guard takes them: whatever hangs until then is ended by them.
 */
void rfs_guard_block(bool foreground);

/* Starts the guard of a mount whose session is mounted, and sets its bell; once in a process. */
int rfs_guard_start(struct rfs_mount *mount, struct rfs_error *err);

/*
 * Returns once the guard looks at the mount and its session no more. It ends the process as ever if
 * that takes too long.
 */
void rfs_guard_leave(void);
/* What could have hung is over. */
void rfs_guard_rest(void);

/* Whether the calling thread is the guard's, which must not wait for sources. */
bool rfs_guard_is_me(void);
/*
 * Of the guard's thread: REQ, of which nothing is known any more then, is to be held for another
 * one.
 */
void rfs_guard_defer(fuse_req_t req);

#endif
