/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may read a file, or search a folder: as much of it as the owner, the group and the permissions of one file can
 * say. Where they cannot say it all (an access control list, folders above, several files), they say less: nobody gets
 * in who could not before.
 *
 * Threads: all functions; they keep nothing.
 */
#ifndef RFS_SOURCE_IO_ACCESS_H
#define RFS_SOURCE_IO_ACCESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

struct rfs_access {
    uid_t uid;
    gid_t gid;
    bool user, group, others; /* whether the owner may, others of the group, all others */
};

/* What is wanted: permission bits of others. */
enum { RFS_MAY_READ = 04, RFS_MAY_SEARCH = 01 };

/* This process alone. */
struct rfs_access rfs_access_own(void);
/*
 * To the file at PATH, whose attributes are ST: by these and its access control list, if it has one. What cannot be
 * found out, or be said, is denied.
 */
struct rfs_access rfs_access_of(const char *path, const struct stat *st, unsigned wanted);
/* The same of the N bytes of a list, as the kernel gives it. */
struct rfs_access rfs_access_listed(const struct stat *st, unsigned wanted, const void *list,
                                    size_t n);
/* To both. Where owners or groups differ and count, they become this process's. */
struct rfs_access rfs_access_both(struct rfs_access a, struct rfs_access b);
/* To a file below folders that ABOVE tells of: owner and group stay the file's where these let everybody through. */
struct rfs_access rfs_access_below(struct rfs_access above, struct rfs_access file);

/* The folder that was asked for last: a tree's rank folders have it above them. */
struct rfs_access_above {
    pthread_mutex_t lock; /* a leaf lock */
    char *path;           /* owned; NULL: none yet */
    struct rfs_access access;
};
/*
 * By whom all folders above PATH, which is absolute and without links, may be searched. ABOVE may be NULL; all of it is
 * under its lock.
 */
struct rfs_access rfs_access_above(struct rfs_access_above *above, const char *path);
/*
 * Whether a name still has the file whose attributes were THEN: a list and folders are looked up by name, and the name
 * may have been given to another file meanwhile.
 */
bool rfs_access_is_of(const struct stat *then, const struct stat *now);

/* Permission bits: BITS of those who may, such as 0444 or 0555. */
static inline unsigned rfs_access_mode(struct rfs_access access, unsigned bits)
{
    return bits &
           ((access.user ? 0700u : 0) | (access.group ? 070u : 0) | (access.others ? 07u : 0));
}

#endif
