/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies that are made for a source. */
#pragma once

#include "layout/layout_rules.h"
#include "layout/strategy.h"
#include "survey/headers/rank_headers.h"

/*
 * Makes a strategy for the tensors of a source by rules (layout_rules.h), whose numbers the model
 * in PATH (NULL: in the working folder) may give; RULES NULL: that of the training that saved a
 * Checkpoint 2.0, which describes it. USE has what is asked for, but tensors and numbers. 0 with
 * *out owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_strategy(struct rfs_headers_source *source, const char *path,
                         const struct rfs_headers *headers, const char *rules,
                         const struct rfs_layout_rules_use *use, struct rfs_strategy **out,
                         struct rfs_error *err);
