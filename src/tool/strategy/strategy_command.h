/* SPDX-License-Identifier: Apache-2.0 */
/* What `reshard strategy show` prints, for other commands that meet a strategy. */
#pragma once

#include "tool/common/args.h"
#include "tool/common/show.h"

/* Adds a row for each parameter and stage that the globs take. FIT (NULL: no tree) gives shapes. */
void rfs_command_strategy_rows(const struct rfs_strategy *strategy, const struct rfs_fit *fit,
                               struct rfs_globs *globs, struct rfs_table *table);
/* Writes "strategy: 12 parameters, 1 stage of 8 devices" to OUT. */
void rfs_command_strategy_summary(const struct rfs_strategy *strategy, char *out, size_t size);
