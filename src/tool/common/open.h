/* SPDX-License-Identifier: Apache-2.0 */
/* Opens views for the commands that need one. */
#pragma once

#include "base/error.h"
#include "base/options.h"
#include "base/settings.h"
#include "reshard.h"

/* Unless cache= is among the options. With a key, blocks of 64 MiB must fit. */
#define RFS_TOOL_CACHE "128M"
#define RFS_TOOL_CACHE_KEYED "256M"

/* A reshard_log_fn: errors and warnings to the standard error, as the tool says its own. */
void rfs_tool_log(void *ctx, enum reshard_level level, const char *line);

/* Hardens the process if OPTIONS name a key. 0, or -errno with *err filled. */
int rfs_tool_harden(const struct rfs_options *options, struct rfs_error *err);

/*
 * Opens SOURCE with OPTIONS, after hardening the process if they name a key. LOG may be NULL:
 * rfs_tool_log. LATE as of rfs_view_start. 0, or -errno with *err filled; *out is the caller's,
 * NULL on failure.
 */
int rfs_tool_open(const char *source, const struct rfs_settings *options, reshard_log_fn *log,
                  void *log_ctx, bool late, reshard_view **out, struct rfs_error *err);

/*
 * URLs that this command reads are read by these options, until it ends. 0, or -errno with *err
 * filled.
 */
int rfs_tool_objects(const struct rfs_options *options, const char *path, struct rfs_error *err);
