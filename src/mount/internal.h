/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mount, as the files of this room share it. Requests are answered by any of the session's
 * threads.
 */
#pragma once

#include "base/log.h"
#include "base/vec.h"
#include "mount/fuse.h"
#include "mount/keeper.h"
#include "mount/mount_options.h"
#include "mount/request.h"
#include "mount/sandbox.h"
#include "reshard.h"

#include <pthread.h>
#include <stdatomic.h>

/* An open file. */
struct rfs_handle {
    reshard_reader *reader; /* owned; NULL: the file is one of the mount's own, with a text */
    char *text;             /* owned */
    size_t bytes;           /* length of the text */
    atomic_uint users; /* the opener, and reads: one that was given up may outlast its closing */
    struct rfs_handle *next, *previous;
};

struct rfs_mount {
    reshard_view *view;                      /* borrowed */
    const struct rfs_mount_options *options; /* borrowed */
    struct fuse_session *session;            /* borrowed; set before the first request */
    const char *mountpoint;                  /* borrowed */
    const struct rfs_sandbox *sandbox;       /* borrowed; constant */
    uint64_t hidden;                         /* id of the hidden folder */
    time_t since;                            /* begin in seconds of CLOCK_MONOTONIC; constant */
    struct timespec made;                    /* begin by CLOCK_REALTIME; constant */
    unsigned protocol[2]; /* of the kernel's FUSE, major and minor; set by the first request */
    const struct rfs_keeper *keeper; /* borrowed; set before the first request */
    atomic_bool gone;                /* it was let go of */
    struct rfs_requests requests;
    struct rfs_log log;
    bool cached;  /* files go through the page cache; constant */
    bool by_file; /* but only those that are mapped by their readers; constant */

    /* Files that are open, because the kernel releases none of those that an unmount cuts off. */
    pthread_mutex_t handles_lock; /* guards the lists of handles and drops; a leaf lock */
    struct rfs_handle *handles;

    /*
     * Some file became ESTALE: pages that the kernel keeps are not trusted over an open any more.
     */
    atomic_bool stale;
    /*
     * Inodes whose pages the kernel is to drop, and whether a thread asks it to. At most one does,
     * because it may wait for reads that the other threads must be free to answer. Guarded by the
     * lock of handles.
     */
    RFS_VEC(fuse_ino_t) drops;
    bool dropping;

    /* Called once, by the thread that has answered the first request (INIT). */
    void (*started)(void *ctx);
    void *started_ctx;
};

/*
 * Ends the mount: waiting calls get an error, and the keeper unmounts. Does nothing the second
 * time; from any thread. Defined in session.c.
 */
void rfs_mount_let_go(struct rfs_mount *mount);
