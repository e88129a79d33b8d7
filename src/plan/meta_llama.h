/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of Llama as Meta publishes it (catalog/scan/whole.c): whether the ready cuts that
 * are taken for them are true. Names do not say how many ranks there were, so the shapes must.
 */
#pragma once

#include "base/error.h"

struct rfs_hf_config;
struct rfs_index;
struct rfs_catalog;
struct rfs_strategy;

/*
 * Says whether the first rank's embedding has fewer columns than the model: Llama 1 and 2 cut it by
 * columns, Llama 3 by rows. Headers are read by then, else it is false. O(parameters).
 */
bool rfs_plan_meta_by_columns(struct rfs_catalog *source);
/*
 * Refuses a tensor of Llama in INDEX, the first rank's, whose whole shape, by SRC, does not
 * follow from CONFIG, the model's params.json or config.json, or contradicts that of another
 * tensor. CONFIG may be NULL: then queries are as wide as the model. 0, or -EINVAL with *err
 * filled.
 */
int rfs_plan_meta_prove(struct rfs_catalog *source, const struct rfs_strategy *src,
                        const struct rfs_index *index, const struct rfs_hf_config *config,
                        struct rfs_error *err);
