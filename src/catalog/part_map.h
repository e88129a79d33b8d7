/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON file that maps each parameter to one of several files: HuggingFace's
 * model.safetensors.index.json and MindSpore's param_name_map.json. json_map.c draws them.
 */
#pragma once

#include "base/error.h"
#include "formats/index.h"
#include "formats/walker.h"

struct rfs_mapped {
    uint32_t name; /* id in the tables */
    uint32_t part; /* which file */
};

struct rfs_beneath;

struct rfs_part_map {
    struct rfs_mapped *data; /* in the order of the text, each name once; owned */
    size_t n, cap;
    uint32_t *by_name; /* positions in data, ascending by name; owned */
    char *path;        /* owned */
    /*
     * Parameters that are not in the map are not part of the checkpoint, as in MindSpore. (With a
     * single file MindSpore ignores the map.)
     */
    bool closed;
};

/*
 * Reads the map at PATH of a checkpoint that consists of these FILES, in the folder of the map.
 * Returns 0 with *out to be freed by rfs_part_map_free, also after a failure: -EINVAL for another
 * kind of file, -ENOENT when it names another file, -EFBIG, -ENOMEM, or the system's error, each
 * with *err filled.
 */
int rfs_part_map_read(const struct rfs_beneath *beneath, const char *path, const char *const *files,
                      size_t n_files, struct rfs_tables *tables, struct rfs_part_map *out,
                      struct rfs_error *err);
void rfs_part_map_free(struct rfs_part_map *map);
/* The name's entry in data; NULL when the map does not have it. */
const struct rfs_mapped *rfs_part_map_find(const struct rfs_part_map *map, uint32_t name);
