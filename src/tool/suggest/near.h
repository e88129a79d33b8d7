/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files near a source, in its folder and in the one above, that options may name. A few thousand
 * entries are looked at, at most. Paths begin as that of the source does.
 */
#pragma once

#include "base/error.h"
#include "base/path.h"
#include "base/store.h"

/*
 * Where the config.json of a model lies, the nearest first: those of one place count, and no
 * others. A config is one that has a model_type; but the source's own is it in any case.
 */
enum rfs_near_place {
    RFS_NEAR_OWN,     /* in the source, or beside it, if it is a file */
    RFS_NEAR_BASE,    /* in the model that an adapter names */
    RFS_NEAR_BELOW,   /* in folders in the source, or beside the file */
    RFS_NEAR_ABOVE,   /* in the folder that the source is in */
    RFS_NEAR_BESIDE,  /* in folders beside the source */
    RFS_NEAR_NOWHERE, /* there is none */
};

struct rfs_near {
    struct rfs_store *store;         /* reads URLs, or NULL; borrowed */
    struct rfs_path_list strategies; /* files, and folders of them, sorted; each can be read */
    struct rfs_path_list places[RFS_NEAR_NOWHERE]; /* configs by place, sorted */
    enum rfs_near_place place;                     /* the nearest that has some */
    bool folder;                                   /* the source is a folder */
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
