/* SPDX-License-Identifier: Apache-2.0 */
/* Paths: compared as texts, joined, resolved; several paths in one text. */
#pragma once

#include "base/error.h"

struct rfs_store;

/* Returns whether INNER is OUTER or lies below it. Both are absolute and resolved. */
static inline bool rfs_path_within(const char *inner, const char *outer)
{
    const size_t n = strlen(outer);

    if (strcmp(outer, "/") == 0)
        return true;
    return strncmp(inner, outer, n) == 0 && (inner[n] == '\0' || inner[n] == '/');
}

/* Returns the name behind the last slash. */
static inline const char *rfs_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Returns FOLDER/NAME, malloc'ed; NULL when out of memory. */
char *rfs_path_join(const char *folder, const char *name);
/*
 * Finds the folder that a path is in, absolute, and (unless NULL) its name there, both malloc'ed.
 * The folder has to exist. 0, or -errno with *err filled.
 */
int rfs_path_parent(const char *path, char **folder, char **name, struct rfs_error *err);
/*
 * Finds the absolute path of SOURCE, malloc'ed, without links: but the name of a file stays as it
 * was given, because its ending decides about the format. 0, or -errno with *err filled.
 */
int rfs_path_resolve(struct rfs_store *store, const char *source, char **path,
                     struct rfs_error *err);
/*
 * Refuses PATH if it is SOURCE, lies below it, or has it below: paths as for rfs_path_within. WHAT
 * PATH is, "the mount point", and REMEDY are for the message. 0, or -ELOOP with *err filled.
 */
int rfs_path_refuse_overlap(const char *path, const char *source, const char *what,
                            const char *remedy, struct rfs_error *err);
/* Fails because SOURCE cannot be looked at; CODE is an errno, positive or negative. -errno. */
int rfs_path_fail(const char *source, int code, struct rfs_error *err);

/*
 * Several paths in one text, with ':' between. A name may hold a ':' itself: what exists as it is
 * written is one path, and the longest run of pieces that exists is taken first. What does not
 * exist ends at the next ':'. Zero-initialise.
 */
struct rfs_path_list {
    char **data; /* each owned; "" where nothing stands between two ':' */
    size_t n, cap;
};

/* Splits a text; looks at the file system. 0 or -ENOMEM; *out is to be freed in any case. */
int rfs_path_list_split(const char *text, struct rfs_path_list *out);
/*
 * Appends PATH, which then belongs to the list; frees it and gives false when out of memory, or
 * when it is NULL.
 */
bool rfs_path_list_add(struct rfs_path_list *list, char *path);
/* Sorts the paths by their bytes. */
void rfs_path_list_sort(struct rfs_path_list *list);
void rfs_path_list_free(struct rfs_path_list *list);
