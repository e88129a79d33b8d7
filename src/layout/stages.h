/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strategy files of a pipeline's stages, merged into one strategy, as if read from the file
 * that mindspore.merge_pipeline_strategys writes. Files come one after the other; those of several
 * ranks of a stage must be equal, and are then taken once.
 *
 * Cost: one document and one strategy for each stage, and 16 bytes for each file.
 */
#pragma once

#include "layout/strategy.h"

struct rfs_stages;
struct rfs_strategy_doc;

/* Begins to merge. NAME, a folder or a list of files, names the whole in messages. 0 or -ENOMEM. */
int rfs_stages_new(const char *name, struct rfs_stages **out, struct rfs_error *err);
void rfs_stages_free(struct rfs_stages *merge);

/*
 * Adds a file; its name decides between protobuf and JSON. -EINVAL with *err filled when it is no
 * strategy of one stage, or does not go with the files before it.
 */
int rfs_stages_add(struct rfs_stages *merge, const char *file, const void *data, size_t size,
                   struct rfs_error *err);

/*
 * Returns the document that merge_pipeline_strategys would write; it belongs to MERGE, and is
 * valid as long as the names of the files.
 */
const struct rfs_strategy_doc *rfs_stages_document(const struct rfs_stages *merge);

/*
 * Makes the strategy of all files. -EINVAL with *err filled when there were no files, or a stage is
 * missing. *out is the caller's.
 */
int rfs_stages_finish(struct rfs_stages *merge, struct rfs_strategy **out, struct rfs_error *err);
