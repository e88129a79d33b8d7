/* SPDX-License-Identifier: Apache-2.0 */
/* The sources of commands: views, their tensors, a source alone, and the headers of all ranks. */
#pragma once

#include "base/log.h"
#include "base/progress.h"
#include "base/settings.h"
#include "base/vec.h"
#include "reshard.h"
#include "survey/headers/rank_headers.h"
#include "survey/whole_tensors.h"
#include "tool/common/args.h"
#include "view/start.h"

/* ---- views ----------------------------------------------------------------------------------- */

/*
 * Opens SOURCE with OPTIONS: rfs_view_start. HOW may be NULL; its default log is rfs_tool_log.
 * Returns 0, or -errno with *err filled; *out is the caller's, NULL on failure.
 */
int rfs_tool_open(const char *source, const struct rfs_settings *options,
                  const struct rfs_view_how *how, reshard_view **out, struct rfs_error *err);

/*
 * Gives a view that has no options of a store those of the other one: two sides mostly lie in one
 * store. Returns 0 or -ENOMEM.
 */
int rfs_tool_share_store(struct rfs_settings *one, struct rfs_settings *other);

/*
 * Finds the store by which this command reads URLs until it ends, of N PATHS, each NULL or read
 * without a view: rfs_view_options_reach. OPTIONS may be NULL.
 */
int rfs_tool_reach(const struct rfs_settings *options, const char *const *paths, size_t n,
                   struct rfs_store **out, struct rfs_error *err);

/* ---- tensors --------------------------------------------------------------------------------- */

/*
 * Opens PATH and lists its tensors: rfs_whole_open with those whose names GLOBS take (or NULL:
 * all). rfs_tool_open takes OPTIONS; those of the outputs' format are taken and do nothing. Returns
 * 0, or
 * -errno with *err filled; to be closed in any case, CUT first.
 */
int rfs_tool_tensors(const char *path, const struct rfs_settings *options, struct rfs_globs *globs,
                     const struct rfs_view_how *how, struct rfs_whole *whole, struct rfs_whole *cut,
                     struct rfs_error *err);
/* Names, after a failure because PATH lacks a strategy, the command's FLAG for it ("-s"). */
void rfs_tool_name_strategy(const char *flag, struct rfs_error *err);

/* ---- a source alone -------------------------------------------------------------------------- */

/*
 * Prepares a source: rfs_headers_prepare. SINK NULL: warnings go to the standard error. Returns 0,
 * or
 * -errno with *err filled; to be closed in any case.
 */
int rfs_tool_source_prepare(const struct rfs_settings *options, const char *path,
                            rfs_log_sink *sink, void *ctx, struct rfs_headers_source *out,
                            struct rfs_error *err);
