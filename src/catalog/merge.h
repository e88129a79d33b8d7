/* SPDX-License-Identifier: Apache-2.0 */
/* One index of several files that make one checkpoint together. */
#pragma once

#include "base/log.h"
#include "catalog/part_map.h"

/* The files to merge, and the rules; all borrowed. */
struct rfs_merge {
    const char *const *files; /* [n] paths */
    /* [n] of these files, in the order in which they count */
    const struct rfs_index *const *indexes;
    size_t n;
    const struct rfs_part_map *map; /* NULL: there is none */
    /* of a name in several files, the last's value is taken; else it is refused */
    bool last_counts;
    const char *skip; /* "a:b": names that begin so are left out; or NULL */
    struct rfs_tables *tables;
    struct rfs_log *log; /* may be NULL */
};

/*
 * Entries are in the order of the map and then file by file, in the order of each; a name that is
 * in several files is where it came first. Returns 0 with *out owned by the caller, else *out is
 * NULL: -EINVAL when the map does not match the files, a name is in two files, or nothing is left;
 * -ENOMEM; each with *err filled.
 */
int rfs_merge(const struct rfs_merge *merge, struct rfs_index **out, struct rfs_error *err);
