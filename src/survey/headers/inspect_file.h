/* SPDX-License-Identifier: Apache-2.0 */
/* Files and folders by themselves: the kind of a path, and the contents of a file or a source. */
#pragma once

#include "base/error.h"
#include "base/path.h"
#include "base/store.h"
#include "catalog/scan/scan.h"
#include "formats/beside.h"
#include "formats/chunks/state_parts.h"
#include "formats/index.h"
#include "survey/headers/rank_headers.h"

struct rfs_format_row;
struct rfs_store;

enum rfs_inspect_what {
    RFS_INSPECT_FILE, /* a file of tensors */
    RFS_INSPECT_ENCRYPTED,
    RFS_INSPECT_STRATEGY,
    RFS_INSPECT_GROUP,
    RFS_INSPECT_RULES,
    RFS_INSPECT_WEIGHT_MAP,
    RFS_INSPECT_MANIFEST,
    RFS_INSPECT_TREE,
    RFS_INSPECT_PARTS,
    RFS_INSPECT_CHUNKS,     /* a folder whose checkpoint describes itself */
    RFS_INSPECT_RANK,       /* a folder of checkpoints of one rank */
    RFS_INSPECT_STRATEGIES, /* a folder of strategies, and nothing else */
    RFS_INSPECT_CONFIG,     /* the config.json of a model */
};
/* The kind of a path. */
struct rfs_inspect_kind {
    enum rfs_inspect_what what;
    const struct rfs_format_row *row; /* the format of a file of tensors, or of parts; else NULL */
};
/*
 * Detects the kind of PATH, by its first bytes or the names in it: a folder that a view opens
 * without options is a source here, too. With KEYED, the caller has a key, and a file of no known
 * kind counts as encrypted. Returns 0, or -errno with *err filled, also for JSON of no kind.
 */
int rfs_inspect_detect(struct rfs_store *store, const char *path, bool keyed,
                       struct rfs_inspect_kind *kind, struct rfs_error *err);
/* Refuses a text, taken for RFS_INSPECT_RULES, that does not begin as rules do. 0 or -errno. */
int rfs_inspect_check_rules(struct rfs_store *store, const char *path, struct rfs_error *err);
/* Says whether PATH is of that kind. Where it cannot be told it is not. */
bool rfs_inspect_is(struct rfs_store *store, const char *path, enum rfs_inspect_what what);
/* Says whether a name has the ending of a format of files. */
bool rfs_inspect_is_name(const char *name);
/*
 * Finds the checkpoint that counts in the folder of a rank: *OUT, its path, owned by the caller. 0,
 * or -errno with *err filled.
 */
int rfs_inspect_rank_file(struct rfs_store *store, const char *folder, char **out,
                          struct rfs_error *err);

/* Returns the step in the name of a save, as rfs_scan_step_of does. */
int64_t rfs_inspect_step(const char *path);
/* Says whether a name is that of a rank's folder, as rfs_scan_is_rank does. */
bool rfs_inspect_is_rank(const char *name);
/* Finds folders or files of ranks or parts in a folder, as rfs_scan_ranked does. */
void rfs_inspect_ranked(struct rfs_store *store, const char *folder, struct rfs_scan_ranked *out);
/* Returns the folder of a later save than PATH, as rfs_scan_later does. */
char *rfs_inspect_later(struct rfs_store *store, const char *path);
/* Adds the files of tensors that are likely wanted of a folder, as rfs_scan_likely does. */
void rfs_inspect_likely(struct rfs_store *store, const char *folder, struct rfs_path_list *out);

/* A file of one checkpoint. */
struct rfs_inspect_file {
    const char *format; /* its name */
    uint64_t bytes;
    size_t others; /* values that are not tensors */
    bool has_crc, redundancy_removed;
    const char *mode; /* of an encrypted file, without a key; else NULL. It has no tensors then */
    uint32_t blocks;  /* encrypted blocks */
};
/*
 * Reads the headers of a file of tensors of the format ROW, or with NULL an encrypted one, by the
 * options of SOURCE. Calls EACH for its tensors, and VALUE, if it is not NULL, for named values.
 * Returns 0, or -errno with *err filled.
 */
int rfs_inspect_file(const struct rfs_headers_source *source, const char *path,
                     const struct rfs_format_row *row, rfs_index_each_fn *each,
                     rfs_format_value_fn *value, void *ctx, struct rfs_inspect_file *out,
                     struct rfs_error *err);
/* Reads group info: the ranks with equal checkpoints, owned by the caller. 0 or -errno. */
int rfs_inspect_group(struct rfs_store *store, const char *path, uint32_t **ranks, size_t *n,
                      struct rfs_error *err);
/*
 * Calls VALUE for the named values of an open source that is one checkpoint of files: those of its
 * first file. 0, or -errno with *err filled.
 */
int rfs_inspect_values(const struct rfs_headers_source *source, rfs_format_value_fn *value,
                       void *ctx, struct rfs_error *err);
/*
 * Adds the checkpoints below a folder to OUT, a few levels down: of several whose names differ in
 * numbers the last.
 */
void rfs_inspect_below(struct rfs_store *store, const char *folder, struct rfs_path_list *out);

/* A source of chunks, opened by rfs_headers_open. All but the list of files is the source's. */
struct rfs_inspect_chunks {
    const char *format;
    size_t tensors, chunks;
    size_t unread;    /* tensors that can't be shown; their numbers follow those of the others */
    const char *lost; /* files that are lost, for a message; or NULL */
    /* Words of entry=, if all tensors are in dicts: those at the top, and those in the only one. */
    const struct rfs_path_list *dicts, *inner_dicts;
    uint32_t n_files;
    struct rfs_inspect_chunk_file {
        const char *name; /* path within the source's folder */
        uint64_t chunks;
        uint64_t content; /* bytes of tensors */
        uint64_t bytes;   /* 0, if it is not there */
        bool is_there;
    } * files; /* [n_files] owned by the caller, also after a failure */
};
/* Describes such a source. 0, or -ENOMEM with *err filled. */
int rfs_inspect_chunks(const struct rfs_headers_source *source, struct rfs_inspect_chunks *out,
                       struct rfs_error *err);
/* A tensor of such a source. */
struct rfs_inspect_chunked {
    const char *name;
    const char *why; /* reason why it can't be shown, and the rest is zero; or NULL */
    const struct rfs_type *type;
    uint32_t chunks;
    bool incomplete;
    uint64_t pieces[RFS_MAX_DIMS]; /* pieces that each axis is cut into */
};
/* Gives tensor I, below tensors + unread. */
void rfs_inspect_chunked(const struct rfs_headers_source *source, size_t i,
                         struct rfs_inspect_chunked *out);

/* The state in files that it is divided over. */
struct rfs_inspect_parts {
    const char *format, *files; /* name of the format, and of that of the files */
    struct rfs_chunks_state state[RFS_CHUNKS_STATE];
};
/*
 * Describes the state in the parts of the format ROW, opened by rfs_headers_open, and calls EACH
 * for its tensors, as its reader does. 0, or -errno with *err filled.
 */
int rfs_inspect_parts(const struct rfs_headers_source *source, const struct rfs_format_row *row,
                      rfs_index_each_fn *each, void *ctx, struct rfs_inspect_parts *out,
                      struct rfs_error *err);
