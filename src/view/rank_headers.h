/* SPDX-License-Identifier: Apache-2.0 */
/* A source without a view of it, and the headers of all its ranks. */
#pragma once

#include "base/progress.h"
#include "base/vec.h"
#include "catalog/catalog.h"
#include "view/view_options.h"

struct rfs_key;

/* A source as the options of a view say that it is to be read, without a view of it. */
struct rfs_headers_source {
    struct rfs_options options;
    struct rfs_log log;
    struct rfs_pool *pool;
    struct rfs_key *key;             /* opens encrypted sources; NULL: they are plain */
    struct rfs_encrypted *encrypted; /* NULL: sources are plain */
    struct rfs_catalog *catalog;     /* NULL before rfs_tool_source_open */
};

/*
 * Takes OPTIONS for PATH (may be NULL), and reads the key if they name one, after hardening the
 * process. Returns 0, or -errno with *err filled; to
 * be closed in any case.
 */
int rfs_headers_prepare(const struct rfs_settings *options, const char *path, rfs_log_sink *sink,
                        void *ctx, struct rfs_headers_source *out, struct rfs_error *err);
/* Lists the source. */
int rfs_headers_open(struct rfs_headers_source *source, const char *path, struct rfs_error *err);
/* Closes a source, also one that is zero. */
void rfs_headers_close(struct rfs_headers_source *source);

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

/*
 * Returns the failure of the first rank that cannot be read, with *err filled; 0 when there is none.
 */
int rfs_headers_failure(const struct rfs_headers *headers, struct rfs_error *err);

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
