/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files near a source, in its folder and in the one above, that options may name. A few thousand
 * entries are looked at, at most. Paths begin as that of the source does.
 */
#pragma once

#include "base/error.h"
#include "base/path.h"
#include "base/store.h"

struct rfs_near {
    struct rfs_store *store;         /* reads URLs, or NULL; borrowed */
    struct rfs_path_list strategies; /* files, and folders of them, sorted; each can be read */
    struct rfs_path_list configs;    /* config.json of models, but that in the source itself */
};

/*
 * Looks for them, in a URL by STORE. 0, or -ENOMEM with *err filled; *out is to be freed in any
 * case.
 */
int rfs_near_find(struct rfs_store *store, const char *source, struct rfs_near *out,
                  struct rfs_error *err);
void rfs_near_free(struct rfs_near *near);
/* Returns the folder that a path is in, as its user would type it; malloc'ed. NULL: no memory. */
char *rfs_near_above(const char *path);
