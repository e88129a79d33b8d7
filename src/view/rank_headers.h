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
    struct rfs_catalog *catalog;     /* NULL before rfs_headers_open */
};

/*
 * Takes OPTIONS for PATH (may be NULL), and reads the key if they name one, after hardening the
 * process. Returns 0, or -errno with *err filled; to be closed in any case.
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
    size_t n;                      /* its parameters */
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
int rfs_headers_read(const struct rfs_headers_source *source, bool all,
                     struct rfs_progress *progress, struct rfs_headers *out, struct rfs_error *err);
/*
 * Lists the ranks that have files, without a look into these; bytes is the size of the first file.
 * 0, or -ENOMEM with *err filled.
 */
int rfs_headers_list(const struct rfs_headers_source *source, struct rfs_headers *out,
                     struct rfs_error *err);
/* Returns the mode in which files are encrypted, where no key is given; else NULL. */
const char *rfs_headers_encryption(const struct rfs_headers_source *source);
void rfs_headers_free(struct rfs_headers *headers);

/*
 * Returns the failure of the first rank that cannot be read, with *err filled; 0 when there is none.
 */
int rfs_headers_failure(const struct rfs_headers *headers, struct rfs_error *err);

/* Returns the rank, or NULL. O(log n). */
const struct rfs_headers_rank *rfs_headers_find(const struct rfs_headers *headers, uint32_t rank);
/* Returns the number of parameters of a rank's kind; 0 if it has none. */
static inline size_t rfs_headers_count(const struct rfs_headers *headers,
                                       const struct rfs_headers_rank *rank)
{
    return rank->kind == RFS_NO_KIND ? 0 : headers->kinds.data[rank->kind].n;
}
/* Returns one more than the highest rank; some below it may have no files. */
uint32_t rfs_headers_end(const struct rfs_headers *headers);
/* Returns the path of the first file of a rank that has N files. */
const char *rfs_headers_file(const struct rfs_headers *headers, uint32_t rank, uint32_t *n);
/* Returns the path of the source, and the name of its format. */
const char *rfs_headers_path(const struct rfs_headers *headers);
const char *rfs_headers_format(const struct rfs_headers *headers);

/* Returns the number of names in all headers, which are ids from 0 on. */
uint32_t rfs_headers_names(const struct rfs_headers *headers);
const char *rfs_headers_name(const struct rfs_headers *headers, uint32_t id);
/* Returns the id of a name, or RFS_NO_ID. */
uint32_t rfs_headers_find_name(const struct rfs_headers *headers, const char *name);
/* Gives parameter I of a kind: the id of its name, its type, and its offset in the file. */
const struct rfs_type *rfs_headers_parameter(const struct rfs_headers *headers,
                                             const struct rfs_headers_kind *kind, size_t i,
                                             uint32_t *name, uint64_t *offset);
/* Returns the type of the parameter of that name in a kind, or NULL. */
const struct rfs_type *rfs_headers_type_in(const struct rfs_headers *headers,
                                           const struct rfs_headers_kind *kind, uint32_t name);
/* Returns the type of the value of that name in a rank, or NULL. */
const struct rfs_type *rfs_headers_type(const struct rfs_headers *headers,
                                        const struct rfs_headers_rank *rank, uint32_t name);
