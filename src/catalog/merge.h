/* SPDX-License-Identifier: Apache-2.0 */
/* One index of several files that make one checkpoint together, and the map of their parameters. */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "formats/index.h"
#include "formats/walker.h"

struct rfs_beneath;
struct rfs_mapfile;
struct rfs_store;

struct rfs_merge_mapped {
    uint32_t name; /* id in the tables */
    uint32_t file; /* number among the files */
};

/*
 * The JSON file that says which file has each parameter: model.safetensors.index.json of
 * HuggingFace or param_name_map.json of MindSpore. weight_map.c draws them.
 */
struct rfs_merge_map {
    struct rfs_merge_mapped *data; /* entries in the order of the text, each name once; owned */
    size_t n, cap;
    uint32_t *by_name; /* positions in data, ascending by name; owned */
    char *path;        /* owned */
    /*
     * Parameters that are not in the map are not part of the checkpoint, as in MindSpore. (With a
     * single file MindSpore ignores the map.)
     */
    bool closed;
};

/* The files to merge, and how; all borrowed. */
struct rfs_merge {
    const char *const *files;               /* [n] paths */
    const struct rfs_index *const *indexes; /* [n] by file, in the order in which they count */
    size_t n;
    const struct rfs_beneath *beneath; /* where the map is opened; NULL: links are followed */
    struct rfs_store *store;           /* reads a map that is a URL */
    const char *weight_map;            /* path of the map; NULL: there is none */
    struct rfs_mapfile *map; /* what the map says, freed when used; NULL or empty: it is read */
    bool last_counts; /* a name in several files has the last one's value; else it is refused */
    const char *skip; /* "a:b": names that begin so are left out; or NULL */
    struct rfs_tables *tables;
    struct rfs_log *log; /* may be NULL */
};

/*
 * Makes the map of MERGE, which consists of files in the map's folder; its indexes may be NULL.
 * Returns 0 with *out to be freed by rfs_merge_map_free, also after a failure: -EINVAL for another
 * kind of file, -ENOENT when it names another file, -EFBIG, -ENOMEM, or the system's error, each
 * with *err filled. Other files than merge.c call it for tests alone, as the next two.
 */
int rfs_merge_map_read(const struct rfs_merge *merge, struct rfs_merge_map *out,
                       struct rfs_error *err);
void rfs_merge_map_free(struct rfs_merge_map *map);
/* Returns the name's entry in data; NULL when the map does not have it. */
const struct rfs_merge_mapped *rfs_merge_map_find(const struct rfs_merge_map *map, uint32_t name);

/*
 * Merges indexes. Entries are in the order of the map and then file by file, in the order of each;
 * a name that is in several files is where it came first. Returns 0 with *out owned by the caller,
 * else *out is NULL: -EINVAL when the map does not match the files, a name is in two files, or
 * nothing is left; -ENOMEM; or an error of rfs_merge_map_read; each with *err filled.
 */
int rfs_merge(const struct rfs_merge *merge, struct rfs_index **out, struct rfs_error *err);
