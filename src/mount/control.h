/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mount's own files in the view's hidden folder: stats.json, metrics, config.json and log,
 * whose texts are made when they are opened and stay the same for as long as that file is open; and
 * extended attributes.
 *
 * Threads: all functions.
 */
#pragma once

#include "mount/internal.h"

/* The first of the ids that are no view's. */
#define RFS_CONTROL_IDS (UINT64_C(1) << 62)

static inline bool rfs_control_owns(uint64_t id)
{
    return id >= RFS_CONTROL_IDS;
}

/*
 * Find and list entries, as reshard_lookup and reshard_list do, with those of the mount. Options
 * say whether the hidden folder is there, and in the root's list.
 */
int rfs_control_lookup(const struct rfs_mount *m, uint64_t parent, const char *name, uint64_t *id);
int rfs_control_list(const struct rfs_mount *m, uint64_t dir, uint64_t position,
                     reshard_dirent *out);

/* Makes the text of one of the mount's files, owned by the caller. 0 or -errno. */
int rfs_control_text(const struct rfs_mount *m, uint64_t id, char **text, size_t *bytes);
/* Makes the attributes of such a file, which hold for the moment. 0 or -errno. */
int rfs_control_stat(const struct rfs_mount *m, uint64_t id, struct stat *st);

/* Answer the requests for extended attributes. */
void rfs_control_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void rfs_control_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
