/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of an account: names of objects and folders, and their attributes, from lists and
 * from questions about single names, until they are forgotten. Stores and hubs list all that is
 * below a prefix. Web servers list a folder at a time, mostly without attributes. Of these, folders
 * beside one that is listed are listed with it, and files with the same ending as one that is asked
 * for, in its folder and in those beside that, are asked for with it: 63 at most, by one thread at
 * a time.
 *
 * Cost: a list has 48 bytes, the name and the ETag of each entry, an answer 360 bytes and its URL.
 * All of the process take at most RFS_RETRIES_MEMORY.
 *
 * Threads: all functions but new and free. The lock is a leaf lock, not held across any request.
 */
#pragma once

#include "store/remote/account.h"

#include <sys/stat.h>

/* Attributes of an object, or of a folder. */
struct rfs_attributes {
    bool folder;
    uint64_t size;
    time_t modified;
    char etag[256], when[64]; /* "" where there is none; the second as the server wrote it */
};

/* Makes an empty one; NULL when out of memory. */
struct rfs_directory *rfs_directory_new(void);
/* Does nothing with NULL. */
void rfs_directory_free(struct rfs_directory *directory);
/* Forgets all. Lists that are in use stay until they are given back. */
void rfs_directory_drop(struct rfs_directory *directory);

/*
 * Finds the attributes of URL, a name of a commit if it is of a hub, and fills *ST with them. 0, or
 * -errno with rfs_store_fail.
 */
int rfs_directory_find(struct rfs_account *account, const char *url, struct rfs_attributes *out,
                       struct stat *st);

/* Has the calls of base/store.h; FORGET forgets commits, too. */
extern const struct rfs_store_directory rfs_directory_calls;
