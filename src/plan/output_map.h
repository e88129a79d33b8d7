/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How parameters leave: under which name, and with which element type. Read from the user's map and
 * rules; immutable but for marks of the names that were looked up; thread-safe.
 */
#ifndef RFS_PLAN_OUTPUT_MAP_H
#define RFS_PLAN_OUTPUT_MAP_H

#include "base/error.h"
#include "base/log.h"
#include "source/dtype.h"

struct rfs_output_map;

struct rfs_output_map_config {
    const char *names; /* path of a JSON object: output_map.c draws it; or NULL */
    const char *dtype; /* "bfloat16", or rules; dtype_rules.c has the grammar; or NULL */
};

/* 0 with *out owned by the caller, NULL when the config is empty; or -errno with *err filled. */
int rfs_output_map_open(const struct rfs_output_map_config *config, struct rfs_output_map **out,
                        struct rfs_error *err);
void rfs_output_map_free(struct rfs_output_map *output_map);

/*
 * The XXH3-128 of what the map says; zeros where there is none. (The rules of dtypes are said by their text.) 0, or
 * -1 when out of memory.
 */
int rfs_output_map_digest(const struct rfs_output_map *output_map, uint64_t digest[2]);

/*
 * The name that NAME is shown by (NAME itself, the same pointer, when it has no other), or NULL when it is
 * left out. A map never shows two by one name, but one may be given the name of a parameter that is not in
 * the map: whoever makes a file of them has to see to that. OUTWARD may be NULL here and below. O(1).
 */
const char *rfs_output_map_name(const struct rfs_output_map *output_map, const char *name);

/*
 * The dtype in which the parameter that is shown as NAME leaves: FROM unless a rule says otherwise, which
 * none does where rfs_dtype_is_float is false. O(rules).
 */
enum rfs_dtype rfs_output_map_dtype(const struct rfs_output_map *output_map, const char *name,
                                    enum rfs_dtype from);

/*
 * Says in the log, once, which names of the map were not looked up so far. To be called when a file was
 * planned: then all names of the source strategy and of the file's sources were.
 */
void rfs_output_map_report(const struct rfs_output_map *output_map, struct rfs_log *log);

#endif
