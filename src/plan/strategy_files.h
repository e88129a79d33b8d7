/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads strategies from files, or makes them by rules of layouts (layout/layout_rules.h) or by
 * ready cuts (rules/cuts.h).
 */
#pragma once

#include "base/error.h"
#include "base/path.h"
#include "layout/layout_rules.h"
#include "layout/strategy.h"

struct rfs_catalog;
struct rfs_hf_config;
struct rfs_store;

/*
 * Reads the strategy that TEXT names: the path of a strategy file, of a folder of the files of a
 * pipeline's stages, or several of either with ':' between. Several files are merged in memory.
 * Returns 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_plan_read_strategy(struct rfs_store *store, const char *text, struct rfs_strategy **out,
                           struct rfs_error *err);

/*
 * Appends the paths of the strategy files in a folder, sorted. Returns 0, or -errno with *err
 * filled.
 */
int rfs_plan_list_strategies(struct rfs_store *store, const char *folder, struct rfs_path_list *out,
                             struct rfs_error *err);

/*
 * A model whose numbers rules may need. CONFIG is owned, and opened when it is needed: config.json,
 * or params.json of Meta, or what the source's first file says. The rest is borrowed.
 */
struct rfs_plan_model {
    struct rfs_store *store;     /* reads URLs, or NULL */
    const char *hf_config;       /* the path of its config.json, or NULL */
    const char *source;          /* the folder that may have one */
    struct rfs_catalog *catalog; /* of the source, or NULL */
    struct rfs_hf_config *config;
};
/* Opens the config; it stays NULL where there is none. 0, or -errno with *err filled. */
int rfs_plan_model_open(struct rfs_plan_model *model, struct rfs_error *err);
/* Finds a number for rules of layouts (struct rfs_layout_rules_use); CTX is a model. */
int rfs_plan_model_number(void *ctx, const char *key, uint64_t *number, struct rfs_error *err);
void rfs_plan_model_end(struct rfs_plan_model *model);

/*
 * Makes a strategy by rules of layouts. VALUE is the path of their file, the rules themselves with
 * ';' between lines, or ready cuts (rules/cuts.h); OPTION is their name in messages. Sets
 * use->ready. Returns 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_plan_strategy_by_rules(struct rfs_store *store, const char *option, const char *value,
                               struct rfs_layout_rules_use *use, struct rfs_log *log,
                               struct rfs_strategy **out, struct rfs_error *err);
