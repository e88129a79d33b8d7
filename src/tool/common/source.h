/* SPDX-License-Identifier: Apache-2.0 */
/* The sources of commands: views, their tensors, a source alone, and the headers of all ranks. */
#pragma once

#include "base/log.h"
#include "base/settings.h"
#include "base/vec.h"
#include "catalog/catalog.h"
#include "reshard.h"
#include "tool/common/args.h"
#include "tool/common/progress.h"
#include "view/view_options.h"
#include "view/whole_tensors.h"

#include <pthread.h>

struct rfs_key;
struct rfs_strategy;
struct rfs_view_how;

/* ---- views ----------------------------------------------------------------------------------- */

/* The default of cache=. With a key, blocks of 64 MiB must fit. */
#define RFS_TOOL_CACHE "128M"
#define RFS_TOOL_CACHE_KEYED "256M"

/*
 * A reshard_log_fn: prints errors and warnings to the standard error, as the tool prints its own.
 */
void rfs_tool_log(void *ctx, enum reshard_level level, const char *line);

/*
 * Opens SOURCE with OPTIONS, after hardening the process if they name a key. LOG may be NULL:
 * rfs_tool_log. rfs_view_start takes HOW. Returns 0, or -errno with *err filled; *out is the
 * caller's, NULL on failure.
 */
int rfs_tool_open(const char *source, const struct rfs_settings *options, reshard_log_fn *log,
                  void *log_ctx, const struct rfs_view_how *how, reshard_view **out,
                  struct rfs_error *err);

/*
 * Gives each of two views the options of a store that the other one has, unless it has its own: a
 * process reads from one store. Returns 0 or -ENOMEM.
 */
int rfs_tool_share_store(struct rfs_settings *one, struct rfs_settings *other);

/*
 * Sets the options by which this command reads URLs until it ends; PATH may be NULL.
 * Returns 0, or -errno with *err filled.
 */
int rfs_tool_objects(const struct rfs_options *options, const char *path, struct rfs_error *err);
/*
 * Does what rfs_tool_objects does for N PATHS, each NULL or read without a view. OPTIONS may be
 * NULL.
 */
int rfs_tool_reach(const struct rfs_settings *options, const char *const *paths, size_t n,
                   struct rfs_error *err);

/* ---- tensors --------------------------------------------------------------------------------- */

/*
 * Opens PATH and lists its tensors: rfs_whole_open with those whose names GLOBS take (or NULL: all).
 * rfs_tool_open takes OPTIONS; those of the outputs' format are taken and do nothing. Returns 0, or
 * -errno with *err filled; to be closed in any case, CUT first.
 */
int rfs_tool_tensors(const char *path, const struct rfs_settings *options, struct rfs_globs *globs,
                     const struct rfs_view_how *how, struct rfs_whole *whole, struct rfs_whole *cut,
                     struct rfs_error *err);
/* Opens PATH and lists the tensors of a rank: rfs_whole_open_rank. */
int rfs_tool_tensors_of_rank(const char *path, const struct rfs_settings *options, int64_t rank,
                             struct rfs_whole *whole, struct rfs_error *err);
/* Names, after a failure because PATH lacks a strategy, the command's FLAG for it ("-s"). */
void rfs_tool_name_strategy(const char *flag, struct rfs_error *err);

/* ---- a source alone -------------------------------------------------------------------------- */

/* A source as the options of a view say that it is to be read, without a view of it. */
struct rfs_tool_source {
    struct rfs_options options;
    struct rfs_log log;
    struct rfs_pool *pool;
    struct rfs_key *key;             /* opens encrypted sources; NULL: they are plain */
    struct rfs_encrypted *encrypted; /* NULL: sources are plain */
    struct rfs_catalog *catalog;     /* NULL before rfs_tool_source_open */
};

/*
 * Takes OPTIONS for PATH (may be NULL), and reads the key if they name one, after hardening the
 * process. SINK NULL: warnings go to the standard error. Returns 0, or -errno with *err filled; to
 * be closed in any case.
 */
int rfs_tool_source_prepare(const struct rfs_settings *options, const char *path,
                            rfs_log_sink *sink, void *ctx, struct rfs_tool_source *out,
                            struct rfs_error *err);
/* Lists the source. */
int rfs_tool_source_open(struct rfs_tool_source *source, const char *path, struct rfs_error *err);
/* Closes a source, also one that is zero. */
void rfs_tool_source_close(struct rfs_tool_source *source);

/* ---- headers --------------------------------------------------------------------------------- */

/*
 * The headers of all ranks of a source, and which ranks have equal ones.
 *
 * Every rank's headers are read, in parallel, or of a large tree the first of each kind and samples
 * of the others (rfs_catalog_resembles): then a rank of 10,000 parameters costs a dozen small
 * reads. Costs 64 bytes a rank beside the indexes; ranks that are alike share one.
 */
#define RFS_NO_KIND UINT32_MAX

struct rfs_headers_rank {
    uint32_t rank;
    uint32_t kind;  /* which of the kinds; RFS_NO_KIND: none, for the reason below */
    uint64_t bytes; /* size of its files, as they are on disk */
    bool sampled;   /* the kind was found by samples */
    bool empty;     /* the file holds no parameters */
    int code;       /* why it could not be read; 0 */
    char *why;      /* the message; owned */
};

/* Ranks with equal indexes. */
struct rfs_headers_kind {
    const struct rfs_index *index; /* the catalogue's */
    uint32_t lead;                 /* the lowest of them that was read */
    uint32_t ranks;                /* how many they are */
};

struct rfs_headers {
    struct rfs_catalog *catalog;    /* borrowed */
    struct rfs_headers_rank *ranks; /* [n] owned; those that have files, ascending */
    uint32_t n;
    RFS_VEC(struct rfs_headers_kind) kinds; /* ordered by their leads */
    bool sampled;                           /* some ranks are */
};

/*
 * Reads the headers. ALL: samples are never enough. PROGRESS may be NULL. Returns 0 or -ENOMEM with
 * *err filled: ranks that cannot be read have their own messages. To be freed in any case.
 */
int rfs_headers_read(struct rfs_catalog *catalog, struct rfs_pool *pool, bool all,
                     struct rfs_progress *progress, struct rfs_headers *out, struct rfs_error *err);
void rfs_headers_free(struct rfs_headers *headers);

/* Returns the rank, or NULL. O(log n). */
const struct rfs_headers_rank *rfs_headers_find(const struct rfs_headers *headers, uint32_t rank);
/* Returns the index of a rank's kind, or NULL. */
static inline const struct rfs_index *rfs_headers_index(const struct rfs_headers *headers,
                                                        const struct rfs_headers_rank *rank)
{
    return rank->kind == RFS_NO_KIND ? NULL : headers->kinds.data[rank->kind].index;
}
/* Returns the type of the value of that name in a rank, or NULL. */
const struct rfs_type *rfs_headers_type(const struct rfs_headers *headers,
                                        const struct rfs_headers_rank *rank, uint32_t name);
