/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: a thread that waits for nothing but the kernel and the clock, so that a mount can't
 * hang. It
 *
 *  - takes the signals that end the mount, which are blocked in all other threads;
 *  - gives up requests whose callers are killed (request.h);
 *  - takes the kernel's requests while all threads are busy (one, with --single-thread) and no
 *    thread has taken any for a while. It answers requests that wait for no source, and holds the
 *    others until a thread is free (channel.h). So the server always hears that a caller was killed
 *    or that the mount is gone, and lists folders even if the sources hang;
 *  - cancels the work under way when the mount ends. If that has not ended within
 *    RFS_GUARD_PATIENCE, because a system call on a source hangs, it unmounts and ends the process.
 *
 * It sleeps while some thread waits for requests: a mount that is idle never wakes.
 */
#pragma once

#include "base/error.h"
#include "mount/fuse.h"

#define RFS_GUARD_PATIENCE 1500 /* milliseconds */
/* More, to save data for the next mount once this one is gone. */
#define RFS_GUARD_SAVING 10000

struct rfs_mount;

/*
 * Blocks the signals that the guard takes, in the calling thread and the threads that it starts:
 * all that end a program, except ignored ones, and SIGHUP, which ends a mount in the foreground. To
 * be called once there is a mount: until then these signals end the process, even if it hangs.
 */
void rfs_guard_block(bool foreground);

/* Starts the guard of a mount whose session is mounted, and sets its bell; once in a process. */
int rfs_guard_start(struct rfs_mount *mount, struct rfs_error *err);

/*
 * Returns once the guard no longer uses the mount and its session. The guard still ends the process
 * if that takes too long.
 */
void rfs_guard_leave(void);
/* The work that could have hung is over. */
void rfs_guard_rest(void);

/* Whether the calling thread is the guard's, which must not wait for sources. */
bool rfs_guard_is_me(void);
/*
 * In the guard's thread: holds REQ for another thread. The guard forgets REQ.
 */
void rfs_guard_defer(fuse_req_t req);
