/* SPDX-License-Identifier: Apache-2.0 */
/* A source alone, as the options of a view say that it is to be read, without a view of it. */
#pragma once

#include "base/log.h"
#include "base/settings.h"
#include "catalog/catalog.h"
#include "view/options.h"

struct rfs_key;
struct rfs_strategy;

struct rfs_tool_source {
    struct rfs_options options;
    struct rfs_log log;
    struct rfs_pool *pool;
    struct rfs_key *key; /* of encrypted sources; NULL: they are plain, as below */
    struct rfs_encrypted *encrypted;
    struct rfs_catalog *catalog; /* NULL before rfs_tool_source_open */
};

/*
 * Takes OPTIONS for PATH (may be NULL), and reads the key if they name one, after
 * hardening the process. SINK NULL: warnings go to the standard error. 0, or -errno with *err
 * filled; to be closed in any case.
 */
int rfs_tool_source_prepare(const struct rfs_settings *options, const char *path,
                            rfs_log_sink *sink, void *ctx, struct rfs_tool_source *out,
                            struct rfs_error *err);
/* Lists the source. */
int rfs_tool_source_open(struct rfs_tool_source *source, const char *path, struct rfs_error *err);
/* Also one that is zero. */
void rfs_tool_source_close(struct rfs_tool_source *source);

/* How its files are to be read, for readers without a catalogue; borrows both. */
struct rfs_source_spec rfs_tool_source_spec(const struct rfs_tool_source *source, const char *path);
