/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens files beneath a folder, and refuses symbolic links that lead out of it: for a server with
 * more rights than the users that write the source, which shows files to others. A link to a file
 * of root's must not expose that file.
 *
 * Threads: all functions but open and free.
 */
#pragma once

#include "base/error.h"
#include "base/store.h"

#include <sys/stat.h>

struct rfs_beneath;

/*
 * Opens the folder of a source: SOURCE itself, or the one that the file SOURCE is in. Links in
 * SOURCE itself, which the user gave, are followed. 0, or -errno with *err filled. Object stores
 * have no links: *out is NULL.
 */
int rfs_beneath_open(const char *source, struct rfs_beneath **out, struct rfs_error *err);
/* Closes the folder. Does nothing with NULL. */
void rfs_beneath_free(struct rfs_beneath *beneath);

/*
 * Opens PATH, which is absolute, as open(2) does with FLAGS and O_CLOEXEC; makes no file. Links
 * that stay beneath the folder are followed. A PATH outside the folder comes from the user's map of
 * files: its own folder, which has no links, takes the place of the source's. With NULL all links
 * are followed. Returns the descriptor, or -errno: -EXDEV where a link leads out.
 */
int rfs_beneath_file(const struct rfs_beneath *beneath, const char *path, int flags);

/* The next three read a URL by STORE, wherever BENEATH is (base/store.h). */

/*
 * Gets the attributes of the file that rfs_beneath_file opens, which may be unreadable. 0 or
 * -errno.
 */
int rfs_beneath_stat(const struct rfs_beneath *beneath, struct rfs_store *store, const char *path,
                     struct stat *st);
/* Opens a folder for rfs_dir_next. 0 or -errno. */
int rfs_beneath_dir(const struct rfs_beneath *beneath, struct rfs_store *store, const char *path,
                    struct rfs_dir *out);
/* Reads a whole file, as rfs_store_read_whole does. 0, or -errno with *err filled. */
int rfs_beneath_read(const struct rfs_beneath *beneath, struct rfs_store *store, const char *path,
                     size_t limit, char **data, size_t *size, struct rfs_error *err);

/* Fills *err with the meaning and the remedy of -EXDEV, which it returns. */
int rfs_beneath_fail(struct rfs_error *err, const char *path);

/*
 * Says whether PATH, which is absolute, comes to the file system DEVICE, through links and mounts,
 * wherever it ends. This process may serve that file system: looking up a name there would wait for
 * the process itself, so no request is made to it. False for a path that cannot be walked: opening
 * it gives the reason.
 */
bool rfs_beneath_leads_to(const char *path, dev_t device);
