/* SPDX-License-Identifier: Apache-2.0 */
/* The strategies that options name: read from files, or made by rules of layouts. */
#pragma once

#include "base/error.h"
#include "base/path.h"
#include "layout/layout_rules.h"
#include "layout/strategy.h"

struct rfs_hf_config;
struct rfs_store;
struct rfs_view;

/*
 * Reads the strategy that TEXT names: the path of a strategy file, of a folder of the files of a
 * pipeline's stages, or several of either with ':' between. Several files are merged in memory.
 * Returns 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_view_read_strategy(struct rfs_store *store, const char *text, struct rfs_strategy **out,
                           struct rfs_error *err);

/*
 * Appends the paths of the strategy files in a folder, sorted. Returns 0, or -errno with *err
 * filled.
 */
int rfs_view_list_strategies(struct rfs_store *store, const char *folder, struct rfs_path_list *out,
                             struct rfs_error *err);

/*
 * A model whose numbers rules may need. CONFIG is owned, and opened when it is needed; the rest is
 * borrowed.
 */
struct rfs_view_model {
    struct rfs_store *store; /* reads URLs, or NULL */
    const char *hf_config;   /* the path of its config.json, or NULL */
    const char *source;      /* the folder that may have one */
    struct rfs_hf_config *config;
};
/* Finds a number for rules of layouts (struct rfs_layout_rules_use); CTX is a model. */
int rfs_view_model_number(void *ctx, const char *key, uint64_t *number, struct rfs_error *err);
void rfs_view_model_end(struct rfs_view_model *model);

/*
 * Makes a strategy by rules of layouts. VALUE is the path of their file, the rules themselves with
 * ';' between lines, or ready cuts (rules/cuts.h); OPTION is their name in messages. Sets
 * use->ready. Returns 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_view_strategy_by_rules(struct rfs_store *store, const char *option, const char *value,
                               struct rfs_layout_rules_use *use, struct rfs_log *log,
                               struct rfs_strategy **out, struct rfs_error *err);

/*
 * Sets view->src and view->dst, of the files or by the rules that the options name; NULL is
 * unsharded. The catalogue is open; with conversion rules it is another one afterwards
 * (rules_view.h). Rules for the source are for the tensors of its files: the headers of the first
 * rank and of the last are read, and all others' only if these two show that each lacks parameters
 * of the other. Rules for the destination are for the parameters of view->src, or if that is NULL
 * of the files. Headers that have been read must fit. Returns 0, or -errno with *err filled.
 */
int rfs_view_take_strategies(struct rfs_view *view, struct rfs_error *err);
