/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies that are made for a source. */
#pragma once

#include "layout/layout_rules.h"
#include "layout/strategy.h"
#include "survey/headers/rank_headers.h"

/*
 * Makes a strategy for the tensors of a source by rules (layout_rules.h). The config of the model
 * in PATH (NULL: the working folder) may give their numbers. RULES NULL: the strategy of the
 * training that saved a Checkpoint 2.0. USE has the rest of the request, without tensors and
 * numbers. Returns 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_strategy(struct rfs_headers_source *source, const char *path,
                         const struct rfs_headers *headers, const char *rules,
                         const struct rfs_layout_rules_use *use, struct rfs_strategy **out,
                         struct rfs_error *err);
