/* SPDX-License-Identifier: Apache-2.0 */
/* Opens views for the commands that need one. */
#pragma once

#include "base/error.h"
#include "base/options.h"
#include "base/settings.h"
#include "reshard.h"

struct rfs_view_how;

/* Unless cache= is among the options. With a key, blocks of 64 MiB must fit. */
#define RFS_TOOL_CACHE "128M"
#define RFS_TOOL_CACHE_KEYED "256M"

/* A reshard_log_fn: errors and warnings to the standard error, as the tool says its own. */
void rfs_tool_log(void *ctx, enum reshard_level level, const char *line);

/* Hardens the process if OPTIONS name a key. 0, or -errno with *err filled. */
int rfs_tool_harden(const struct rfs_options *options, struct rfs_error *err);

/*
 * Opens SOURCE with OPTIONS, after hardening the process if they name a key. LOG may be NULL:
 * rfs_tool_log. HOW as of rfs_view_start. 0, or -errno with *err filled; *out is the caller's,
 * NULL on failure.
 */
int rfs_tool_open(const char *source, const struct rfs_settings *options, reshard_log_fn *log,
                  void *log_ctx, const struct rfs_view_how *how, reshard_view **out,
                  struct rfs_error *err);

/*
 * Options of a store that one of two views has are the other's, too, unless it has its own: a
 * process reads from one store. 0 or -ENOMEM.
 */
int rfs_tool_share_store(struct rfs_settings *one, struct rfs_settings *other);

/*
 * URLs that this command reads are read by these options, until it ends; PATH may be NULL. 0, or
 * -errno with *err filled.
 */
int rfs_tool_objects(const struct rfs_options *options, const char *path, struct rfs_error *err);
/*
 * Does so for N PATHS, each of which may be NULL, and for a command that reads them without a view;
 * OPTIONS NULL: it has none.
 */
int rfs_tool_reach(const struct rfs_settings *options, const char *const *paths, size_t n,
                   struct rfs_error *err);
