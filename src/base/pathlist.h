/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several paths in one text, with ':' between. A name may hold a ':' itself: what exists as it is
 * written is one path, and the longest run of pieces that exists is taken first. What does not
 * exist ends at the next ':'.
 */
#pragma once

#include "base/std.h"

struct rfs_pathlist {
    char **data; /* each owned; "" where nothing stands between two ':' */
    size_t n, cap;
};

/* 0, or -ENOMEM; *out is to be freed in any case. Zero-initialise it. Looks at the file system. */
int rfs_pathlist_split(const char *text, struct rfs_pathlist *out);
/*
 * Appends PATH, which then belongs to the list; frees it and gives false when out of memory, or
 * when it is NULL.
 */
bool rfs_pathlist_add(struct rfs_pathlist *list, char *path);
/* Sorted by their bytes. */
void rfs_pathlist_sort(struct rfs_pathlist *list);
void rfs_pathlist_free(struct rfs_pathlist *list);
