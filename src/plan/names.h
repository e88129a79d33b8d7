/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names and element types of output parameters, read from the user's map and rules. Immutable
 * but for marks of the names that were looked up; thread-safe.
 */
#pragma once

#include "base/error.h"
#include "formats/dtype.h"

struct rfs_names;

struct rfs_names_config {
    const char *names; /* path of a JSON object, or NULL; names.c draws it */
    const char *dtype; /* "bfloat16", or rules, or NULL; names.c has their grammar */
};

/*
 * Reads the map and the rules. 0 with *out owned by the caller, NULL when the config is empty; or
 * -errno with *err filled.
 */
int rfs_names_open(const struct rfs_names_config *config, struct rfs_names **out,
                   struct rfs_error *err);
void rfs_names_free(struct rfs_names *names);

/* Says whether there is a map. */
bool rfs_names_has_map(const struct rfs_names *names);
/*
 * Gives the XXH3-128 of the map's contents, zeros without a map. It does not cover the dtype rules,
 * whose text is known. 0, or -1 when out of memory.
 */
int rfs_names_digest(const struct rfs_names *names, uint64_t digest[2]);

/*
 * Returns the name that NAME is shown by (NAME itself, this very pointer, when it has no other), or
 * NULL when it is left out. A map never gives two parameters the same name, but may give one the
 * name of a parameter outside the map: the caller that makes a file must check for that. The map
 * may be NULL here and below. O(1).
 */
const char *rfs_names_shown(const struct rfs_names *names, const char *name);

/*
 * Returns the name in the source of the parameter that is shown as NAME: NAME itself, this very
 * pointer, when the map does not say another. O(1).
 */
const char *rfs_names_source(const struct rfs_names *names, const char *name);

/*
 * Returns the output dtype of the parameter shown as NAME: FROM unless a rule changes it; rules
 * apply only where rfs_dtype_is_float is true. O(rules).
 */
enum rfs_dtype rfs_names_dtype(const struct rfs_names *names, const char *name,
                               enum rfs_dtype from);

/*
 * Writes a line about the names of the map that were not looked up so far. Called after a file was
 * planned: then all names of the source strategy and of the file's sources were looked up. False:
 * all were.
 */
bool rfs_names_unused(const struct rfs_names *names, char *out, size_t cap);
