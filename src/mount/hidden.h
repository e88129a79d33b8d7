/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mount's own files in the view's hidden folder: stats.json, config.json and log, whose texts
 * are made when they are opened and stay the same for as long as that file is open; and extended
 * attributes.
 *
 * Threads: all functions.
 */
#pragma once

#include "mount/internal.h"

/* Ids that are no view's. */
#define RFS_OWN_IDS (UINT64_C(1) << 62)

static inline bool rfs_hidden_is_own(uint64_t id)
{
    return id >= RFS_OWN_IDS;
}

/*
 * As reshard_lookup and reshard_list, with the entries that are the mount's, and without the hidden
 * folder where options say so, or with it in the root's list.
 */
int rfs_hidden_lookup(const struct rfs_mount *m, uint64_t parent, const char *name, uint64_t *id);
int rfs_hidden_list(const struct rfs_mount *m, uint64_t dir, uint64_t position,
                    reshard_dirent *out);

/* The text of an entry of the mount's, owned by the caller. 0 or -errno. */
int rfs_hidden_text(const struct rfs_mount *m, uint64_t id, char **text, size_t *bytes);
/* Its attributes: they hold for the moment. 0 or -errno. */
int rfs_hidden_stat(const struct rfs_mount *m, uint64_t id, struct stat *st);

/* The requests for extended attributes. */
void rfs_hidden_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void rfs_hidden_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);

/* The texts of config.json and stats.json; hidden_json.c. 0 or -ENOMEM. */
int rfs_hidden_config(const struct rfs_mount *m, char **text, size_t *bytes);
int rfs_hidden_stats(const struct rfs_mount *m, char **text, size_t *bytes);
