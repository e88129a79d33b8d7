/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stores of objects that the views of this process read, each by its own options.
 *
 * Threads: all functions. A leaf lock guards the list of stores.
 */
#pragma once

#include "base/error.h"
#include "base/store.h"

struct rfs_options;

/*
 * Finds the store of a view with these options, on N PATHS (each may be NULL). *out is NULL if no
 * path is a URL. Otherwise the caller ends its use by rfs_remote_give. Views with equal options,
 * environment and profile share one store: it looks for credentials once, and connections= counts
 * for all of them together. The store forgets all objects, because a source is opened anew. Returns
 * 0, or -errno with *err filled.
 */
int rfs_remote_take(const struct rfs_options *options, const char *const *paths, size_t n,
                    struct rfs_store **out, struct rfs_error *err);
/*
 * Ends a use of a store; the last one wipes the credentials. All that was held of it must have been
 * let go. Sets *store to NULL, and does nothing if it is.
 */
void rfs_remote_give(struct rfs_store **store);
/* Returns "libcurl 8.5.0", or NULL in a build that reads no objects. */
const char *rfs_remote_library(void);

/*
 * Returns the file that is read again when the store's credentials end, such as a token's; NULL
 * when there is none, or STORE is NULL.
 */
const char *rfs_remote_token_file(struct rfs_store *store);
/* Loads what libcurl loads at its first use. */
void rfs_remote_load(void);
