/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: a small process that mounts and unmounts for the server, which gives up the right to
 * both before it reads the first file (sandbox.h). It holds the mount's descriptor as well. It
 * obeys three words of the server. Their mount point is its current folder, fixed before, whatever
 * path leads there. Root's keeper gives up what unmounting does not need once it has mounted.
 *
 *     server                            keeper
 *     rfs_keeper_mount   --- mount -->  mounts; sends the descriptor of /dev/fuse
 *     rfs_keeper_raise   --- raise -->  raises the read-ahead of its mount
 *     rfs_keeper_release --- the end->  unmounts, unless that is done, or something else is mounted
 *     rfs_keeper_wait    <-- done ----  ends
 *
 * A server that is killed ends the conversation as well, so that it leaves no dead mount behind.
 * The keeper takes no signal but SIGKILL, as it is to outlive the server by a moment, and has no
 * descriptor, terminal or key of the server.
 *
 * Threads: none may exist when it is started; the functions are called by one thread at a time.
 */
#pragma once

#include "base/error.h"
#include "mount/mount_options.h"

#include <sys/types.h>

struct rfs_keeper {
    int fd; /* the conversation; -1: there is no keeper */
};

#define RFS_KEEPER_NONE ((struct rfs_keeper){-1})

/*
 * Starts the keeper. ARGV is main's, whose memory gets the keeper's title. FOLDER is the descriptor
 * of the folder to be mounted on, and MOUNTPOINT its absolute path. 0, or -errno with *err filled.
 */
int rfs_keeper_start(const struct rfs_mount_options *options, const char *mountpoint, int folder,
                     char **argv, struct rfs_keeper *out, struct rfs_error *err);

/*
 * Mounts. *device, of /dev/fuse, is the caller's; *number is the device number of the mount, 0
 * where it is unknown. 0, or -errno with *err filled.
 */
int rfs_keeper_mount(const struct rfs_keeper *keeper, const char *mountpoint, int *device,
                     dev_t *number, struct rfs_error *err);

/*
 * Raises the kernel's read-ahead for the mount with that DEVICE to 1 MiB, or logs how root can
 * raise it. Only once the mount answers: until then the kernel would set it back.
 */
void rfs_keeper_raise(const struct rfs_keeper *keeper, dev_t device);

/* Tells the keeper that the caller has let go of the device. */
void rfs_keeper_release(const struct rfs_keeper *keeper);
/*
 * Waits until the keeper has unmounted, but no longer than MILLISECONDS. Takes nothing that
 * rfs_keeper_wait is to take.
 */
void rfs_keeper_linger(const struct rfs_keeper *keeper, int milliseconds);
/* Waits for the keeper's end. Returns whether it ended as it should. *keeper is none then. */
bool rfs_keeper_wait(struct rfs_keeper *keeper);
