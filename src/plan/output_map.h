/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names and element types of output parameters, read from the user's map and rules. Immutable
 * but for marks of the names that were looked up; thread-safe.
 */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "formats/dtype.h"

struct rfs_output_map;

struct rfs_output_map_config {
    const char *names; /* path of a JSON object: output_map.c draws it; or NULL */
    const char *dtype; /* "bfloat16", or rules; dtype_rules.c has the grammar; or NULL */
};

/* 0 with *out owned by the caller, NULL when the config is empty; or -errno with *err filled. */
int rfs_output_map_open(const struct rfs_output_map_config *config, struct rfs_output_map **out,
                        struct rfs_error *err);
void rfs_output_map_free(struct rfs_output_map *output_map);

/* Whether it has a map of names. */
bool rfs_output_map_has_names(const struct rfs_output_map *output_map);
/*
 * The XXH3-128 of the map's contents; zeros without a map. (Dtype rules are covered by their text.)
 * 0, or -1 when out of memory.
 */
int rfs_output_map_digest(const struct rfs_output_map *output_map, uint64_t digest[2]);

/*
 * The name that NAME is shown by (NAME itself, the same pointer, when it has no other), or NULL
 * when it is left out. A map never gives two parameters the same name, but may give one the name of
 * a parameter outside the map: the caller that makes a file must check for that. The map may be
 * NULL here and below. O(1).
 */
const char *rfs_output_map_name(const struct rfs_output_map *output_map, const char *name);

/*
 * The name in the source of the parameter that is shown as NAME: NAME itself, the same pointer,
 * when the map does not say another. O(1).
 */
const char *rfs_output_map_source(const struct rfs_output_map *output_map, const char *name);

/*
 * The output dtype of the parameter shown as NAME: FROM unless a rule changes it; rules apply only
 * where rfs_dtype_is_float is true. O(rules).
 */
enum rfs_dtype rfs_output_map_dtype(const struct rfs_output_map *output_map, const char *name,
                                    enum rfs_dtype from);

/*
 * Logs, once, the names of the map that were not looked up so far. To be called after a file was
 * planned: then all names of the source strategy and of the file's sources were looked up.
 */
void rfs_output_map_report(const struct rfs_output_map *output_map, struct rfs_log *log);
