/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers to the kernel's requests. Any of them runs on any of the session's threads; they share
 * only the view, which needs no lock, and the two flags below.
 */
#ifndef RFS_MOUNT_OPS_H
#define RFS_MOUNT_OPS_H

#include "base/log.h"
#include "mount/fuse.h"
#include "mount/options.h"
#include "reshard.h"

#include <stdatomic.h>

struct rfs_mount {
    reshard_view *view;                      /* borrowed */
    const struct rfs_mount_options *options; /* borrowed */
    struct fuse_session *session;            /* borrowed; set before the first request */
    struct rfs_log log;

    /* Some file became ESTALE: pages that the kernel keeps are not trusted over an open any more. */
    atomic_bool stale;
    /* A thread is asking the kernel to drop pages. At most one does, because it may wait for reads
     * that the other threads must be free to answer. */
    atomic_flag dropping;

    /* Called once, from the first request (INIT), before it is answered. */
    void (*started)(void *ctx);
    void *started_ctx;
};

/* What is answered, and what is refused because nothing here can be written. */
void rfs_ops_fill(struct fuse_lowlevel_ops *ops);
void rfs_ops_refuse_writes(struct fuse_lowlevel_ops *ops);

#endif
