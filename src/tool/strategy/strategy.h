/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands of `reshard strategy`, and their shared functions. */
#pragma once

#include "layout/document.h"
#include "tool/common/fit.h"
#include "tool/common/globs.h"
#include "tool/common/source.h"
#include "tool/common/table.h"

/* The command line; all borrowed but the lists. */
struct rfs_strategy_args {
    size_t which; /* subcommand */
    RFS_VEC(const char *) places;
    struct rfs_globs globs;                                     /* --name */
    struct rfs_settings options;                                /* -o, of the view */
    const char *source;                                         /* -s */
    const char *tree;                                           /* --tree */
    const char *rules;                                          /* --rules */
    enum { RFS_FORM_CKPT, RFS_FORM_JSON, RFS_FORM_BY_NAME } to; /* --to */
    uint32_t ranks;                                             /* --ranks; 0: not given */
    bool json, force, strict, whole;
};

/* Each gives 0, or -errno with *err filled; check also 1, when the strategy does not fit. */
int rfs_strategy_show(const struct rfs_strategy_args *args, struct rfs_error *err);
int rfs_strategy_convert(const struct rfs_strategy_args *args, struct rfs_error *err);
int rfs_strategy_merge(const struct rfs_strategy_args *args, struct rfs_error *err);
int rfs_strategy_new(const struct rfs_strategy_args *args, struct rfs_error *err);
int rfs_strategy_check(const struct rfs_strategy_args *args, struct rfs_error *err);

/* A tree whose headers have been read. */
struct rfs_strategy_tree {
    struct rfs_tool_source source;
    struct rfs_headers headers;
    struct rfs_fit fit;
};
/* PATH NULL: none, and headers.n is 0. 0, or -errno with *err filled; to be closed in any case. */
int rfs_strategy_tree_open(const char *path, const struct rfs_settings *options,
                           struct rfs_strategy_tree *tree, struct rfs_error *err);
void rfs_strategy_tree_close(struct rfs_strategy_tree *tree);

/* Adds a row for each parameter and stage that the globs take. FIT (NULL: no tree) gives shapes. */
void rfs_strategy_rows(const struct rfs_strategy *strategy, const struct rfs_fit *fit,
                       struct rfs_globs *globs, struct rfs_table *table);
/* "strategy: 12 parameters, 1 stage of 8 devices", and the same as members of a JSON object. */
void rfs_strategy_summary(const struct rfs_strategy *strategy, char *out, size_t size);
void rfs_strategy_json(struct rfs_json_write *json, const struct rfs_strategy *strategy);

/* Whether OUT is to be JSON: by --to, or its name. 0 or 1, or -EINVAL with *err filled. */
int rfs_strategy_form(const struct rfs_strategy_args *args, const char *out, bool input_is_json,
                      struct rfs_error *err);
/* Writes the file; MERGED as for rfs_doc_json. 0, or -errno with *err filled. */
int rfs_strategy_write(const struct rfs_strategy_args *args, const char *out, bool json,
                       bool merged, const struct rfs_doc *doc, struct rfs_error *err);
/* Gives the document the shapes of the tree's tensors. 0, or -errno with *err filled. */
int rfs_strategy_shapes(const struct rfs_fit *fit, struct rfs_doc *doc, struct rfs_error *err);
