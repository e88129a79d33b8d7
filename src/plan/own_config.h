/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a source itself says of its model: config.json beside it, params.json of Meta, the values of
 * a GGUF file, or the arguments of a training by Megatron. Rules find their numbers there, or in
 * the config that a user gives, which is compared with it.
 *
 * Threads: no shared state.
 */
#pragma once

#include "rules/hf_config.h"

struct rfs_catalog;

/*
 * Opens what the first file of a source says of its model, by the row of its format. *out is owned
 * by the caller, as below; NULL: it says nothing. 0, or -errno with *err filled, as below.
 */
int rfs_plan_file_config(struct rfs_catalog *catalog, struct rfs_hf_config **out,
                         struct rfs_error *err);
/* Opens the config in a folder; *out stays as it is where there is none. STORE may be NULL. */
int rfs_plan_folder_config(struct rfs_store *store, const char *folder, struct rfs_hf_config **out,
                           struct rfs_error *err);
/*
 * Opens the config at the path GIVEN, and has it compared (rfs_hf_config_compare) with what the
 * source in FOLDER has itself: there, in its first file, or in the arguments of its training.
 * CATALOG may be NULL. A config of the source that cannot be read is a reason to give another.
 */
int rfs_plan_given_config(struct rfs_store *store, const char *given, const char *folder,
                          struct rfs_catalog *catalog, struct rfs_hf_config **out,
                          struct rfs_error *err);
