/* SPDX-License-Identifier: Apache-2.0 */
/* Paths: compared as texts, joined, resolved. */
#pragma once

#include "base/error.h"

/* Whether INNER is OUTER or lies below it. Both absolute and resolved. */
static inline bool rfs_path_within(const char *inner, const char *outer)
{
    const size_t n = strlen(outer);

    if (strcmp(outer, "/") == 0)
        return true;
    return strncmp(inner, outer, n) == 0 && (inner[n] == '\0' || inner[n] == '/');
}

/* Behind the last slash. */
static inline const char *rfs_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* FOLDER/NAME, malloc'ed; NULL when out of memory. */
char *rfs_path_join(const char *folder, const char *name);
/*
 * The folder that a path is in, absolute, and (unless NULL) its name there, both malloc'ed. The
 * folder has to exist. 0, or -errno with *err filled.
 */
int rfs_path_parent(const char *path, char **folder, char **name, struct rfs_error *err);
/*
 * The absolute path of SOURCE, malloc'ed, without links: but the name of a file stays as it was
 * given, because its ending decides about the format.
 */
int rfs_path_resolve(const char *source, char **path, struct rfs_error *err);
