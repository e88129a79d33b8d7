/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names and element types of output parameters, and which of them are shown: read from the
 * user's map, patterns and rules. Only the marks of what was looked up change; thread-safe.
 */
#pragma once

#include "base/error.h"
#include "formats/dtype.h"

struct rfs_names;

struct rfs_store;

struct rfs_names_config {
    const char *names;       /* path of a JSON object, "unwrap" or NULL; names.c draws it */
    struct rfs_store *store; /* reads it, if it is a URL */
    const char *only; /* "model.*;lm_head.*", patterns of the names that are shown; or NULL */
    const char *drop; /* patterns of those that are not; or NULL */
    const char *drop_option; /* the option that DROP is of, for messages; NULL: drop */
    const char *dtype;       /* "bfloat16", or rules, or NULL; names.c has their grammar */
    bool weights;            /* values that a training saves beside the weights are not shown */
    /*
     * Tensors of PEFT's adapter have the names of its files, and weights below it are not shown;
     * NAMES is a word for messages then. ADAPTER is the one of several that is shown, or NULL.
     */
    bool adapters;
    const char *adapter;
};

/*
 * Reads the map, the patterns and the rules. 0 with *out owned by the caller, NULL when the config
 * is empty; or
 * -errno with *err filled.
 */
int rfs_names_open(const struct rfs_names_config *config, struct rfs_names **out,
                   struct rfs_error *err);
void rfs_names_free(struct rfs_names *names);

/* Says whether the rules of dtype= are that one dtype, for all parameters. */
bool rfs_names_dtype_is(const char *rules, enum rfs_dtype dtype);

/* Says whether parameters may be left out: there is a map, or patterns are given. */
bool rfs_names_leave_out(const struct rfs_names *names);
/*
 * Gives the XXH3-128 of the map's contents, zeros without a map. It does not cover the patterns and
 * the dtype rules, whose texts are known. 0, or -1 when out of memory.
 */
int rfs_names_digest(const struct rfs_names *names, uint64_t digest[2]);

/*
 * Returns a name without the parts that torch's and PEFT's wrappers of modules put into it, as
 * names=unwrap shows it. Owned by the caller; NULL when out of memory.
 */
char *rfs_names_unwrap(const char *name);
/*
 * Returns the name that the map gives to NAME (NAME itself, this very pointer, when it has no
 * other), or NULL when the map leaves it out. Two parameters may get one name by a key with a star,
 * or that of a parameter outside the map: the caller that makes a file must check for that. NAMES
 * may be NULL here and below. O(1), but O(keys with a star) for a name that is no key.
 */
const char *rfs_names_renamed(const struct rfs_names *names, const char *name);
/*
 * Refuses the names that the map made so far if one of them cannot be shown. 0, or -EINVAL or
 * -ENOMEM with *err filled.
 */
int rfs_names_check(const struct rfs_names *names, struct rfs_error *err);
/* Says whether only adapters of PEFT are shown (ADAPTERS). */
bool rfs_names_of_adapters(const struct rfs_names *names);
/*
 * Says whether the patterns show a parameter, by the name that the map gives it; NULL is not shown.
 * O(patterns).
 */
bool rfs_names_has(const struct rfs_names *names, const char *renamed);
/* Returns the name that NAME is shown by, as rfs_names_renamed does; NULL when it is left out. */
const char *rfs_names_shown(const struct rfs_names *names, const char *name);

/* Looks a name of the source up, so that all that it is like is marked. NAMES may be NULL. */
void rfs_names_look(const struct rfs_names *names, const char *name);

/*
 * Says whether NAME is left out because it is none of a weight. O(patterns of the shipped rules).
 */
bool rfs_names_is_state(const struct rfs_names *names, const char *name);

/*
 * Returns the output dtype of the parameter shown as NAME: FROM unless a rule changes it; rules
 * apply only where rfs_dtype_is_float is true. O(rules).
 */
enum rfs_dtype rfs_names_dtype(const struct rfs_names *names, const char *name,
                               enum rfs_dtype from);

/*
 * Writes a line about the names of the map that were not looked up so far, or about the patterns of
 * drop= that no name looked up so far is like, or of dtype= that none has as the first that it is
 * like. False: there are none.
 */
enum rfs_names_part { RFS_NAMES_MAP, RFS_NAMES_DROP, RFS_NAMES_DTYPE };
bool rfs_names_unused(const struct rfs_names *names, enum rfs_names_part part, char *out,
                      size_t cap);

/*
 * Returns what makes no sense of the options, and the name of its option: the path of a map of
 * which no name was looked up so far, a pattern of only= that none of these names is like, or the
 * first pattern of drop= or of dtype= when none of them is like any. NULL: there is nothing.
 */
const char *rfs_names_unmet(const struct rfs_names *names, const char **option);
/* Refuses the map, none of whose names was looked up. -EINVAL with *err filled. */
int rfs_names_fail_unmet(const struct rfs_names *names, struct rfs_error *err);
