/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded set of open descriptors, each for one path. Idle ones stay open until another path
 * needs the room; the least recently used goes first. A caller that finds all pinned waits.
 *
 * The lock is a leaf lock and is not held across open or close.
 */
#pragma once

#include "store/beneath.h"

#include <pthread.h>

/* One for each path, in the owner's memory; all fields under the set's lock. */
struct rfs_fd {
    int fd; /* -1: closed */
    bool opening;
    uint32_t pins;
    struct rfs_fd *older, *newer; /* in the list of idle ones: open, and not pinned */
};
#define RFS_FD_CLOSED ((struct rfs_fd){.fd = -1})

struct rfs_fds {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned limit;
    unsigned used; /* open, being opened or being closed; at most limit */
    unsigned waiters;
    struct rfs_fd *oldest, *newest;
};

int rfs_fds_init(struct rfs_fds *fds, unsigned limit);
/* Closes the idle descriptors; none may be pinned. */
void rfs_fds_destroy(struct rfs_fds *fds);

/*
 * Pins the descriptor of PATH, opened if it isn't; *fresh says which. It is read-only, and its open
 * never blocks, whatever PATH has become. BENEATH: as rfs_beneath_file has it. 0 or -errno of open.
 */
int rfs_fds_take(struct rfs_fds *fds, struct rfs_fd *entry, const struct rfs_beneath *beneath,
                 const char *path, int *fd, bool *fresh);
/* Whether it is open now; another thread may change that at once. */
bool rfs_fds_is_open(struct rfs_fds *fds, const struct rfs_fd *entry);
/* Unpins it. DROP: it is closed with the last unpin. */
void rfs_fds_give(struct rfs_fds *fds, struct rfs_fd *entry, bool drop);
/* Closes it now if it is idle, as for a file that will not be read again. */
void rfs_fds_drop(struct rfs_fds *fds, struct rfs_fd *entry);
