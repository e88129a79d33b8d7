/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a source is read by. A specification owns nothing; the data it points to must outlive the
 * catalogue opened by it.
 */
#pragma once

#include "base/std.h"

#include <time.h>

#define RFS_RANK_DIR "rank_%d" /* the folders that MindSpore makes */

struct rfs_beneath;
struct rfs_format_row;
struct rfs_fds;
struct rfs_kept;
struct rfs_options;
struct rfs_save;
struct rfs_saves;
struct rfs_store;
struct rfs_encrypted;

/* What an earlier look at a series of saves found, so that the next one looks at new ones alone. */
struct rfs_known_saves {
    const struct rfs_format_row *kind; /* the kind of its checkpoints; NULL: there was none */
    /* Says whether the save of that name in the source was one, and is as it was. */
    bool (*is_known)(void *ctx, const char *name, const struct rfs_save *save);
    void *ctx;
};

struct rfs_source_spec {
    const char *path;                  /* a tree of rank folders, a folder of files, or one file */
    const struct rfs_options *options; /* never NULL */
    bool wide; /* with dequantize, weights become Float32, to be cast; else BFloat16 */
    /* Lists the save that the options choose; NULL: the source is listed. */
    const struct rfs_saves *saves;
    const struct rfs_known_saves *known; /* NULL: nothing is known */
    struct rfs_encrypted *encrypted;     /* opens encrypted files; NULL: files are plain */
    const struct rfs_beneath *beneath;   /* where its files are opened; NULL: links are followed */
    struct rfs_store *store;             /* reads URLs; NULL: the source has none */
    bool for_others;                     /* its data is served to other users, too */
    struct rfs_kept *kept;  /* where indexes are kept for the next view; NULL: nowhere */
    struct timespec opened; /* moment before anything of the source is looked at; 0: now */
    uint64_t index_most;    /* bytes of memory that indexes, or hfai's pickles, may keep; 0: any */
    struct rfs_fds *fds;    /* descriptors that it shares with other sources; NULL: its own */
    /*
     * Callback of the thread that has read the headers of a rank, with the number done and the
     * total; or NULL.
     */
    void (*indexed)(const void *ctx, uint64_t done, uint64_t total);
    const void *indexed_ctx;
};
