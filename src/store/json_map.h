/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A JSON object whose values are texts: a map of files, a weight map. Takes the file's bytes, and
 * 24 to 40 a pair.
 */
#pragma once

#include "base/error.h"

struct rfs_beneath;

/* A weight map of a million names fits. */
#define RFS_JSON_MAP_BYTES ((size_t)128 << 20)

struct rfs_json_pair {
    const char *key, *value; /* in the map's text */
};

struct rfs_json_map {
    struct rfs_json_pair *data; /* in the order of the file; each key once */
    size_t n, cap;
    char *text; /* that of the file; owned */
};

enum rfs_json_map_kind {
    RFS_JSON_PLAIN,       /* the object itself is the map */
    RFS_JSON_WEIGHT_MAP,  /* its member "weight_map" is */
    RFS_JSON_WEIGHT_MAYBE /* likewise if it has one, as MindSpore reads param_name_map.json */
};

/* BENEATH: where the file is opened, as beneath.h has it. *out is to be freed in any case. */
int rfs_json_map_read(const struct rfs_beneath *beneath, const char *path,
                      enum rfs_json_map_kind kind, struct rfs_json_map *out, struct rfs_error *err);
/*
 * The same of SIZE bytes, which are taken over in any case (from malloc) and changed; messages name
 * PATH.
 */
int rfs_json_map_parse(const char *path, char *data, size_t size, enum rfs_json_map_kind kind,
                       struct rfs_json_map *out, struct rfs_error *err);
void rfs_json_map_free(struct rfs_json_map *map);
