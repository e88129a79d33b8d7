/* SPDX-License-Identifier: Apache-2.0 */
/* Source and mount point, looked at before anything is mounted. */
#pragma once

#include "base/error.h"
#include "base/path.h"

#include <sys/stat.h>

/*
 * The resolved path. If it does not resolve, the path after the current folder's, so that opening
 * it gives the error. NULL when out of memory. The caller frees.
 */
char *rfs_path_absolute(const char *path);

/*
 * The path after the current folder's, unless it is absolute. NULL when out of memory. The caller
 * frees.
 */
char *rfs_path_from_here(const char *path);

/*
 * Resolves the mount point, and opens the folder that was looked at: its path may lead to another
 * one later. Refuses a path that is no folder, a dead mount, inside or around the source, or not
 * empty (unless NONEMPTY). 0 with *out and *folder (O_PATH; -1 for a descriptor) owned by the
 * caller, or -errno.
 */
int rfs_path_mountpoint(const char *given, const char *source, bool nonempty, char **out,
                        int *folder, struct rfs_error *err);

/*
 * Whether it is "/dev/fd/N", a descriptor that mount.fuse3 has mounted itself (drop_privileges). It
 * is taken as it is.
 */
bool rfs_path_is_descriptor(const char *mountpoint);

/* Whether both are attributes of one file. */
bool rfs_path_is_same(const struct stat *one, const struct stat *other);
/* Reports that the mount point is not the folder that was looked at. -errno. */
int rfs_path_fail_replaced(const char *mountpoint, struct rfs_error *err);
/* Refuses a machine on which /dev/fuse cannot be opened. 0 or -errno. */
int rfs_path_device(struct rfs_error *err);
