/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of a view, taken from the process when the view is opened: variables with its
 * identity and its stores, the profile in the files of AWS's tools, and the token of hubs. Later
 * requests use it, also to renew credentials, because variables may have changed for another view
 * by then. Nothing else in this folder reads the environment (tests/layers).
 *
 * Files that change, such as a web identity's token, are kept as paths. All of it lies in memory
 * that no core file holds (base/secret.h).
 *
 * Threads: all functions but take and free. Take reads the process's environment, which no thread
 * may change meanwhile.
 */
#pragma once

#include "base/std.h"

struct rfs_environment;

/*
 * Takes the environment as it is now, with the profile that an option names, or (NULL) AWS_PROFILE,
 * or "default". NULL when out of memory.
 */
struct rfs_environment *rfs_environment_take(const char *profile);
/* Wipes and frees it. Does nothing with NULL. */
void rfs_environment_free(struct rfs_environment *environment);
/* Says whether two are equal in all. */
bool rfs_environment_equals(const struct rfs_environment *a, const struct rfs_environment *b);

/*
 * Returns the value that the variable NAME had, one of those that environment.c lists; NULL: it was
 * not set, or empty. Paths of files are absolute.
 */
const char *rfs_environment_get(const struct rfs_environment *environment, const char *name);

/* The way to a server; borrowed from the environment. */
struct rfs_environment_way {
    const char *certificates; /* file of those to trust, as AWS's tools and curl find it; NULL: the
                                 system's */
    const char *proxy, *no_proxy; /* and the hosts that are reached without, as curl finds both */
};
/* Finds the way to URL. "" where there is no proxy, or no such host. */
struct rfs_environment_way rfs_environment_way_to(const struct rfs_environment *environment,
                                                  const char *url);

/* ---- the profile ----------------------------------------------------------------------------- */

enum rfs_profile_file { RFS_PROFILE_CREDENTIALS, RFS_PROFILE_CONFIG };
#define RFS_PROFILE_FILES 2

struct rfs_profile {
    const char *name;      /* borrowed from the environment */
    bool named, by_option; /* something names it; the option does */
};
struct rfs_profile rfs_profile_of(const struct rfs_environment *environment);
/* Writes to OUT the profile's value of NAME in one of the files, or gives false. */
bool rfs_profile_get(const struct rfs_environment *environment, enum rfs_profile_file file,
                     const char *name, char *out, size_t cap);
/*
 * Writes to OUT the value of NAME in [SECTION] or [profile SECTION] of TEXT, or gives false. Other
 * files than environment.c call it for tests alone.
 */
bool rfs_profile_find(const char *text, const char *section, const char *name, char *out,
                      size_t cap);

/* ---- the token of hubs ----------------------------------------------------------------------- */

/*
 * Gives the text with the token, and what has it, for messages: *TEXT is NULL where there is none.
 * 0, or the -errno with which its file could not be read.
 */
int rfs_environment_hub_token(const struct rfs_environment *environment, const char **text,
                              const char **from);
