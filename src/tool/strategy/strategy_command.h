/* SPDX-License-Identifier: Apache-2.0 */
/* What `reshard strategy show` prints, for other commands that meet a strategy. */
#pragma once

#include "tool/common/args.h"
#include "tool/common/show.h"

/*
 * Adds a row for each parameter and stage that the globs take, to OUT the line "strategy: 12
 * parameters, 1 stage of 8 devices", and these numbers as members of the JSON object.
 */
void rfs_command_strategy_tell(const struct rfs_strategy *strategy, struct rfs_globs *globs,
                               struct rfs_table *table, FILE *out, struct rfs_json_write *json);
