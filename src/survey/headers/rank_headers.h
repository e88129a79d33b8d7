/* SPDX-License-Identifier: Apache-2.0 */
/* The headers of all ranks of a source. */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/settings.h"
#include "base/store.h"
#include "base/vec.h"
#include "catalog/catalog.h"

struct rfs_encrypted;
struct rfs_key;
struct rfs_options;
struct rfs_pool;
struct rfs_store;

/* A source as the options of a view say that it is to be read, without a view of it. */
struct rfs_headers_source {
    struct rfs_options *options; /* owned; NULL before rfs_headers_prepare */
    struct rfs_log log;
    struct rfs_pool *pool;
    struct rfs_key *key;             /* opens encrypted sources; NULL: they are plain */
    struct rfs_encrypted *encrypted; /* NULL: sources are plain */
    struct rfs_store *store;         /* reads URLs; NULL: the source is none */
    struct rfs_catalog *catalog;     /* NULL before rfs_headers_open */
    bool parts;                      /* the source is hfai's parts, once it is open */
    const char *encryption; /* mode of files that no key is given for, once it is open; or NULL */
};

/*
 * Takes OPTIONS for PATH (may be NULL), and reads the key if they name one, after hardening the
 * process. Returns 0, or -errno with *err filled; to be closed in any case.
 */
int rfs_headers_prepare(const struct rfs_settings *options, const char *path, rfs_log_sink *sink,
                        void *ctx, struct rfs_headers_source *out, struct rfs_error *err);
/* Lists the source. */
int rfs_headers_open(struct rfs_headers_source *source, const char *path, struct rfs_error *err);
/* Returns the path of the first file of the lowest rank of an open source, which owns it. */
const char *rfs_headers_file(const struct rfs_headers_source *source);
/* Says whether files of an open source have the counts of its model in them, as GGUF's do. */
bool rfs_headers_have_model(const struct rfs_headers_source *source);
/*
 * Gives the files of tensors beside an open source that are not read, each with the reason, and
 * with what its headers have that nothing else has. They belong to the source. 0, or -errno with
 * *err filled: then its own headers cannot be read, and the list has names and reasons alone.
 */
int rfs_headers_aside(const struct rfs_headers_source *source, const struct rfs_aside **out,
                      struct rfs_error *err);
/* Says whether a tensor of the first rank of an open source is named WORD, a dot and more. */
bool rfs_headers_begin(const struct rfs_headers_source *source, const char *word);
/* Closes a source, also one that is zero. */
void rfs_headers_close(struct rfs_headers_source *source);

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
    uint32_t kind;    /* which of the kinds; RFS_NO_KIND: none, for the reason below */
    uint64_t bytes;   /* size of its files, as they are on disk */
    uint32_t files;   /* number of its files */
    const char *path; /* path of the first of them; the catalogue's */
    bool sampled;     /* the kind was found by samples */
    bool empty;       /* the file holds no parameters */
    int code;         /* why it could not be read; 0 */
    char *why;        /* the message; owned */
};

/* Ranks with equal indexes. */
struct rfs_headers_kind {
    const struct rfs_index *index; /* the catalogue's */
    size_t n;                      /* its parameters */
    uint32_t lead;                 /* the lowest of them that was read */
    uint32_t ranks;                /* how many they are */
};

/* A parameter over all ranks. */
struct rfs_headers_parameter {
    const char *name;
    const struct rfs_type *type; /* in the first kind that has it, as the next member is */
    uint64_t offset;             /* offset in the file */
    uint64_t bytes;              /* over all ranks */
    uint32_t ranks;              /* how many have it */
    uint32_t id;                 /* id of the name in the catalogue */
    bool shapes, types;          /* shapes, types differ between ranks */
};

struct rfs_headers {
    const struct rfs_headers_source *source; /* borrowed, like its catalogue */
    struct rfs_catalog *catalog;
    const char *format;             /* name of the source's format */
    uint32_t end;                   /* one more than the highest rank; some below have no files */
    struct rfs_headers_rank *ranks; /* [n] owned; those that have files, ascending */
    uint32_t n;
    RFS_VEC(struct rfs_headers_kind) kinds; /* ordered by their leads */
    bool sampled;                           /* some ranks are */
    /* parameters of all kinds, each once, in the order of the files */
    RFS_VEC(struct rfs_headers_parameter) parameters;
    uint32_t *by_id; /* owned; one more than the parameter's index, by the id of its name; or 0 */
    struct rfs_error failure; /* failure of the first rank that cannot be read; code 0: none */
};

enum rfs_headers_depth {
    RFS_HEADERS_LISTED,  /* ranks that have files alone; bytes is the size of the first file */
    RFS_HEADERS_SAMPLED, /* also headers; samples of a large tree */
    RFS_HEADERS_ALL,     /* also headers; samples are never enough */
};

/*
 * Reads the headers. PROGRESS may be NULL. Returns 0 or -ENOMEM with *err filled: ranks that cannot
 * be read have their own messages. To be freed in any case.
 */
int rfs_headers_read(const struct rfs_headers_source *source, enum rfs_headers_depth depth,
                     struct rfs_progress *progress, struct rfs_headers *out, struct rfs_error *err);
void rfs_headers_free(struct rfs_headers *headers);

/* Returns the parameter of that name, or NULL. */
const struct rfs_headers_parameter *rfs_headers_parameter(const struct rfs_headers *headers,
                                                          const char *name);
/* Returns the type of the parameter with that id in a kind, or NULL. */
const struct rfs_type *rfs_headers_type_in(const struct rfs_headers *headers,
                                           const struct rfs_headers_kind *kind, uint32_t id);
