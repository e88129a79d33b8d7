/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The beginning and the end of reading objects.
 *
 * Threads: all functions.
 */
#pragma once

#include "base/error.h"
#include "base/options.h"

/*
 * Prepares for a view with these options, on N PATHS (each may be NULL), some of which may be URLs.
 * If none is, nothing happens. Else all knowledge of objects is forgotten, the credentials
 * are looked for, and *taken is set: rfs_remote_give must follow. Before the first call no URL can
 * be read, so no store is asked by other options than the user's. 0, or -errno with *err filled.
 */
int rfs_remote_take(const struct rfs_options *options, const char *const *paths, size_t n,
                    bool *taken, struct rfs_error *err);
/* Ends what rfs_remote_take began. Does nothing unless *taken. */
void rfs_remote_give(bool *taken);
/* Returns "libcurl 8.5.0", or NULL in a build that reads no objects. */
const char *rfs_remote_library(void);

/*
 * Returns the file that is read again when credentials end, such as a token's; NULL when there is
 * none.
 */
const char *rfs_remote_token_file(void);
/* Loads what libcurl loads at its first use. */
void rfs_remote_load(void);
