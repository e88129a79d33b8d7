/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of a mount: how threads wait for them, how one is given up before its thread is done
 * with it, and the guard, which sees to it that a mount can't hang.
 *
 * Giving up. A request is answered with EINTR when its caller is killed, with ENOTCONN when the
 * server ends. What the thread does for it is cancelled then; it may go on for a while (a read of
 * storage that hangs cannot be ended), and finds that there is nothing left to answer. The kernel
 * reports any signal to a caller, once for each request. But programs with a handler do not expect
 * that reading a file fails with EINTR, so only a signal that ends the caller counts. After the
 * first signal the guard reads the caller's state in /proc at each tick. If /proc does not show the
 * caller (it lives in another container, or /proc is hidden), the request is given up
 * RFS_REQUEST_GRACE after the signal.
 *
 * Waiting. In read(2) threads queue, and the one that has waited longest is woken, even where its
 * processor is busy assembling and another one is not. Here a few of them, the watchers, wait in
 * poll(2), which wakes all of these: the first one that a processor runs takes the request. The
 * others are parked, since waking each costs something, until no watcher is left.
 *
 * The guard is a thread that waits for nothing but the kernel and the clock. It
 *
 *  - takes the signals that end the mount, which are blocked in all other threads: SIGINT and
 *    SIGTERM, unless they are ignored, and SIGHUP, which ends a mount in the foreground alone,
 *    unless that follows its source;
 *  - gives up requests whose callers are killed;
 *  - takes the kernel's requests while all threads are busy (one, with --single-thread) and no
 *    thread has taken any for a while. It answers requests that wait for no source, and holds the
 *    others until a thread is free, in the order in which they came, unless their callers are
 *    killed before. So the server always hears that a caller was killed or that the mount is gone,
 *    and lists folders even if the sources hang;
 *  - cancels the work under way when the mount ends. If that has not ended, because a system call
 *    on a source hangs, it unmounts and ends the process: once all other threads have slept for
 *    RFS_GUARD_PATIENCE. Threads that run or wait for a processor come to their ends.
 *
 * It sleeps while some thread waits for requests: a mount that is idle never wakes.
 *
 * Threads: any, unless a function says otherwise. The locks are leaf locks.
 */
#pragma once

#include "base/error.h"
#include "mount/fuse.h"
#include "reshard.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

struct rfs_held_request;
struct rfs_mount;
struct rfs_mount_options;

#define RFS_REQUEST_GRACE 500   /* milliseconds */
#define RFS_GUARD_PATIENCE 1500 /* milliseconds */
#define RFS_GUARD_SAVING 10000  /* milliseconds more, to save for the next mount */
#define RFS_GUARD_KEEPER 120000 /* and for the keeper, which takes no source, to unmount before */

/* The request of one thread. The lock is held while another thread answers the request. */
struct rfs_request {
    pthread_mutex_t lock;     /* guards the members up to pid */
    fuse_req_t about;         /* the thread's request; only compared */
    fuse_req_t req;           /* the thread's request while it may be given up; else NULL */
    fuse_ino_t pages;         /* the file whose pages it reads; 0: none */
    int64_t signalled;        /* when its caller got a signal, in milliseconds; 0: it did not */
    pid_t pid;                /* the caller; 0: it is not to be seen */
    int64_t inherited;        /* signalled, of the thread's next request; the thread's own */
    reshard_cancel *cancel;   /* owned; constant */
    atomic_bool taken;        /* by a thread that is alive */
    struct rfs_request *next; /* constant */
};

/* All requests of a mount, and the threads that wait for them. */
struct rfs_requests {
    _Atomic(struct rfs_request *) first; /* one for each thread that there was at a time */

    pthread_mutex_t lock; /* guards the members up to closed, for a few instructions */
    unsigned watchers;    /* threads, with those that were just made so */
    unsigned parked;      /* threads */
    uint64_t turns;       /* how often a thread came to wait */
    struct rfs_held_request *held, **last;
    bool closed;
    sem_t turn;        /* posted for each parked thread that is to watch */
    int wake;          /* descriptor, readable while a request is held or once closed; or -1 */
    atomic_bool begun; /* the first request, INIT, was answered */
    atomic_size_t wanted_bytes; /* length of the last read of a request, which libfuse chose */
    void *room;                 /* memory that the guard reads requests to; owned; or NULL */
    size_t room_bytes;
};

/* Begins without requests. 0 or -errno; it is to be ended all the same. */
int rfs_requests_init(struct rfs_requests *all);
/*
 * Makes the threads of the SESSION, which is mounted and whose user data is a struct rfs_mount,
 * wait for requests as described above. 0 or -errno.
 */
int rfs_requests_open(struct fuse_session *session);
/* Frees all. No request may be under way, and the other threads that had some have ended. */
void rfs_requests_end(struct rfs_requests *all);
/* Returns whether a request is under way that has locked pages of the file INO. */
bool rfs_requests_lock_pages(struct rfs_requests *all, fuse_ino_t ino);

/* ---- one request ----------------------------------------------------------------------------- */

/*
 * Begins work on REQ by the calling thread; the user data of REQ's session is a struct rfs_mount.
 * NULL when out of memory: REQ is worked on all the same then, to its end.
 */
struct rfs_request *rfs_request_begin(fuse_req_t req);
/* Ends that work. Returns whether REQ is still to be answered, by the caller. */
bool rfs_request_end(struct rfs_request *request, fuse_req_t req);
/*
 * Notes that the request of the calling thread reads pages of the file INO: the kernel has locked
 * them until it is answered. REQUEST may be NULL.
 */
void rfs_request_locks_pages(struct rfs_request *request, fuse_ino_t ino);

/* ---- the guard ------------------------------------------------------------------------------- */

/*
 * Blocks these signals in the calling thread and the threads that it starts. To be called once
 * there is a mount: until then they end the process, even if it hangs.
 */
void rfs_guard_block_signals(const struct rfs_mount_options *options);
/* Starts the guard of a mount whose session is mounted; once in a process. 0 or -errno. */
int rfs_guard_start(struct rfs_mount *mount, struct rfs_error *err);
/* Ends the mount; any number of times. */
void rfs_guard_end(void);
/*
 * Ends the mount. Returns once the guard no longer uses it and its session. The guard still ends
 * the process if that takes too long.
 */
void rfs_guard_leave(void);
/* Takes back the time for the keeper, which has unmounted. */
void rfs_guard_unmounted(void);
/* Tells the guard that the work that could have hung is over. */
void rfs_guard_rest(void);

/* Returns whether the calling thread is the guard's, which must not wait for sources. */
bool rfs_guard_is_me(void);
/* Holds REQ for another thread, in the guard's thread, which forgets it. */
void rfs_guard_defer(fuse_req_t req);
