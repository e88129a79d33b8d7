/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's table of mounts. */
#pragma once

#include "base/std.h"

#include <sys/types.h>

/* One mount. Its texts last until the next one. */
struct rfs_mountinfo {
    unsigned long id; /* from 1 up */
    dev_t device;
    const char *point, *type, *source, *options; /* options of the superblock; "": missing */
};

/*
 * Calls TAKE for each mount, in the order of the table, until it gives false. 0, or -EIO when the
 * table can't be read.
 */
int rfs_mountinfo_each(bool (*take)(void *ctx, const struct rfs_mountinfo *mount), void *ctx);

/* Gives the user who made a mount of FUSE, by its options. False: these name none. */
bool rfs_mountinfo_user(const struct rfs_mountinfo *mount, uid_t *user);
