/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that are answered before their thread is done with them: with EINTR when their caller is
 * killed, with ENOTCONN when the server ends. What the thread does for one is cancelled then; it
 * may go on for a while (a read of storage that hangs cannot be ended), and finds that there is
 * nothing left to answer.
 *
 * The kernel reports any signal to a caller, once for each request. But programs with a handler do
 * not expect that reading a file fails with EINTR, so only a signal that ends the caller counts.
 * After the first signal the guard (guard.h) reads the caller's state in /proc at each tick. If
 * /proc does not show the caller (it lives in another container, or /proc is hidden), the request
 * is given up RFS_REQUEST_GRACE after the signal.
 */
#pragma once

#include "base/std.h"
#include "mount/fuse.h"
#include "reshard.h"

#include <pthread.h>
#include <stdatomic.h>

struct rfs_mount;

#define RFS_REQUEST_GRACE 500 /* milliseconds */

/*
 * The request of one thread. The lock is held while another thread answers the request.
 */
struct rfs_request {
    pthread_mutex_t lock; /* of the members up to pid */
    fuse_req_t about;     /* the thread's request; only compared */
    /* the same while it may be given up; NULL: it was, or it is not yet, or not any more */
    fuse_req_t req;
    fuse_ino_t pages;         /* the file whose pages it reads; 0: none */
    int64_t signalled;        /* when its caller got a signal, in milliseconds; 0: it did not */
    pid_t pid;                /* of the caller; 0: it is not to be seen */
    int64_t inherited;        /* the thread's own: signalled, of its next request */
    reshard_cancel *cancel;   /* owned; constant */
    atomic_bool taken;        /* by a thread that is alive */
    struct rfs_request *next; /* constant */
};

/* Of a mount; {0} to begin with. */
struct rfs_requests {
    _Atomic(struct rfs_request *) first; /* one for each thread that there was at a time */
};

/* No request may be under way, and the other threads that had some have ended. */
void rfs_requests_end(struct rfs_requests *all);

/*
 * The calling thread begins to work on REQ, whose session's user data is a struct rfs_mount. NULL
 * when out of memory: REQ is worked on all the same then, to its end.
 */
struct rfs_request *rfs_request_begin(fuse_req_t req);
/*
 * The caller of the request that the calling thread is about to begin got a signal, in
 * milliseconds; 0: it did not.
 */
void rfs_request_was_signalled(struct rfs_mount *mount, int64_t signalled);
/*
 * Whether REQ comes from this process: a source lies in the mount that is made from it. To wait for
 * the answer would be to wait for itself.
 */
bool rfs_request_is_own(fuse_req_t req);
/* It has ended. True when it is still to be answered, by the caller. */
bool rfs_request_end(struct rfs_request *request, fuse_req_t req);

/*
 * Notes that the request of the calling thread reads pages of the file INO: the kernel has locked
 * them until it is answered. REQUEST may be NULL.
 */
void rfs_request_locks_pages(struct rfs_request *request, fuse_ino_t ino);
/* Whether a request is under way that has locked pages of the file INO. */
bool rfs_requests_lock_pages(struct rfs_requests *all, fuse_ino_t ino);

/*
 * Whether a request is to be given up whose caller PID got a signal at SIGNALLED, in milliseconds:
 * 1 when the caller is about to end by it, or can't be seen and has waited long enough; else 0.
 */
bool rfs_request_is_over(pid_t pid, int64_t signalled);

/*
 * Gives up those whose callers are about to end. Whether there are others whose callers got a
 * signal.
 */
bool rfs_requests_look(struct rfs_requests *all);
/* Gives up all, as CODE, an errno. */
void rfs_requests_give_up(struct rfs_requests *all, int code);
