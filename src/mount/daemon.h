/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going to the background, with the outcome sent to the waiting parent over a pipe of our own: the
 * parent knows that the mount answers, or why it does not, before it exits.
 *
 * Threads: none may exist when rfs_daemon_start forks. Ready and fail may come from any one thread.
 */
#pragma once

#include "base/error.h"

#include <sys/types.h>

struct rfs_daemon {
    int pipe; /* the read end in the parent, the write end in the child; -1 in the foreground */
};

#define RFS_DAEMON_NONE ((struct rfs_daemon){-1})

/*
 * Forks. *child is 0 in the child, which belongs to the terminal until it is ready, and ends with
 * its parent until it says otherwise. 0, or -errno.
 */
int rfs_daemon_start(struct rfs_daemon *daemon, pid_t *child, struct rfs_error *err);

/* Makes the child outlive its parent from now on. By the thread that began in it. */
void rfs_daemon_outlive(void);

/*
 * Waits, in the parent, for the child's word. 0 when it is ready, or -errno with the child's error.
 */
int rfs_daemon_wait(struct rfs_daemon *daemon, pid_t child, struct rfs_error *err);

/*
 * Lets the child go of the terminal, lead a session of its own in "/", and send the word. 0, or
 * -EPIPE when the parent has gone (it was interrupted), and so wants no mount. Does nothing in the
 * foreground.
 */
int rfs_daemon_ready(struct rfs_daemon *daemon);

/* Hands the parent the error to print. Returns whether there was a parent to take it. */
bool rfs_daemon_fail(struct rfs_daemon *daemon, const struct rfs_error *err);
