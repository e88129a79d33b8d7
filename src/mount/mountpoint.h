/* SPDX-License-Identifier: Apache-2.0 */
/* The mount point, looked at before anything is mounted, and the mounts that are there. */
#pragma once

#include "base/error.h"

#include <sys/stat.h>

struct rfs_mount_options;

/*
 * Resolves the mount point, and opens the folder that was looked at: its path may lead to another
 * one later. Refuses a path that is no folder, a dead mount, inside or around the source, or not
 * empty (unless nonempty). The descriptor of a mount that another program has made is taken as it
 * is: "/dev/fd/N", from mount.fuse3 (drop_privileges), or one that comes over the socket of the
 * options; *out is "/dev/fd/N" then. 0 with *out and *folder (O_PATH; -1 for a descriptor) owned by
 * the caller, or -errno.
 */
int rfs_mountpoint_open(const struct rfs_mount_options *options, char **out, int *folder,
                        struct rfs_error *err);

/* Returns whether both are attributes of one file. */
static inline bool rfs_mountpoint_is_same(const struct stat *one, const struct stat *other)
{
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}
/* Reports that the mount point is not the folder that was looked at. -errno. */
int rfs_mountpoint_fail_replaced(const char *mountpoint, struct rfs_error *err);
/* Refuses a machine on which /dev/fuse cannot be opened. 0 or -errno. */
int rfs_mountpoint_check_device(struct rfs_error *err);

struct rfs_mounted {
    unsigned long id; /* from 1 up, unique while it is mounted; 0: unknown */
    dev_t device;
    bool ours;         /* its type is ours, which subtype= replaces */
    char source[4096]; /* the source as mount(8) prints it; cut if it is longer */
};

/*
 * Finds the topmost mount at PATH, absolute and without links. 0, -ENOENT when nothing is mounted
 * there, or -EIO when the table can't be read; *out is unknown then.
 */
int rfs_mountpoint_find_mount(const char *path, struct rfs_mounted *out);
