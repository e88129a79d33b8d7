/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read access to files and search access to folders, as the owner, group and permissions of one
 * file. Where these cannot express it (an access control list, folders above, several files), they
 * grant less, never more.
 *
 * Threads: all functions; they keep nothing.
 */
#pragma once

#include "base/std.h"

#include <pthread.h>
#include <sys/stat.h>

struct rfs_access {
    uid_t uid;
    gid_t gid;
    bool user, group, others; /* whether the owner may, others of the group, all others */
};

/* The requested access: permission bits of others. */
enum { RFS_MAY_READ = 04, RFS_MAY_SEARCH = 01 };

/* Returns access for this process only. */
struct rfs_access rfs_access_own(void);
/*
 * Returns access to the file at PATH with attributes ST: by these and its access control list, if
 * any. Access that cannot be determined or expressed is denied.
 */
struct rfs_access rfs_access_of(const char *path, const struct stat *st, unsigned wanted);
/*
 * Returns access by attributes ST and the N bytes of an access control list, as the kernel gives
 * it. Other files than access.c call it for tests alone.
 */
struct rfs_access rfs_access_listed(const struct stat *st, unsigned wanted, const void *list,
                                    size_t n);
/* Returns access to both. Where owners or groups differ and matter, they become this process's. */
struct rfs_access rfs_access_both(struct rfs_access a, struct rfs_access b);
/*
 * Returns access to a file below folders with access ABOVE: owner and group stay the file's where
 * the folders are open to all.
 */
struct rfs_access rfs_access_below(struct rfs_access above, struct rfs_access file);

/*
 * A cache of the last folder: the rank folders of a tree share it. It holds as long as no folder on
 * the path is another or was changed.
 */
struct rfs_access_above {
    pthread_mutex_t lock; /* a leaf lock */
    char *path;           /* owned; NULL: none yet */
    uint64_t state;       /* of all folders on the path, when they were looked at */
    struct rfs_access access;
};
/*
 * Returns search access to all folders above PATH, which is absolute and without links. ABOVE may
 * be NULL; its lock guards all of it.
 */
struct rfs_access rfs_access_above(struct rfs_access_above *above, const char *path);
/*
 * Says whether a name still has the file whose attributes were THEN: a list and folders are looked
 * up by name, and the name may have been given to another file meanwhile.
 */
bool rfs_access_is_of(const struct stat *then, const struct stat *now);

/* Returns those permission bits of BITS, such as 0444 or 0555, that the access grants. */
static inline unsigned rfs_access_mode(struct rfs_access access, unsigned bits)
{
    return bits &
           ((access.user ? 0700u : 0) | (access.group ? 070u : 0) | (access.others ? 07u : 0));
}
