/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's options for reading a source. A specification owns nothing; the data it points to must
 * outlive the catalogue opened by it.
 */
#pragma once

#include "base/options.h"

#include <time.h>

#define RFS_RANK_DIR "rank_%d" /* the folders that MindSpore makes */

struct rfs_beneath;
struct rfs_fds;
struct rfs_saved;
struct rfs_saves;
struct rfs_store;
struct rfs_encrypted;

struct rfs_source_spec {
    const char *path;       /* a tree of rank folders, a folder of files, or one file */
    const char *rank_dir;   /* the names of rank folders, with one %d; NULL: RFS_RANK_DIR */
    const char *file;       /* glob of names of files; NULL: MindSpore's choice */
    const char *files;      /* path of a JSON map from rank to file, instead of folders; or NULL */
    const char *origins;    /* "A:B": where that map may lead beside its own folder; or NULL */
    const char *group_info; /* path of a group info file, or a folder of them; or NULL */
    int64_t step, epoch;    /* numbers of the checkpoint to take, or RFS_ANY_NUMBER */
    const struct rfs_saves
        *saves;                 /* lists the save of step and epoch; NULL: the source is listed */
    bool strict;                /* no rank with other checkpoints may lack that of the save */
    bool segmented;             /* all checkpoints of a folder make one */
    const char *segmented_skip; /* "a:b": parameters that begin so are left out; or NULL */
    const char *entry; /* where in a file of torch.save the state dict is; NULL: it is all of it */
    bool dequantize;   /* quantized weights are shown as plain tensors */
    bool dequantize_wide;            /* they become Float32, to be cast; else BFloat16 */
    const char *quant_config;        /* config.json that says how; NULL: the one beside the files */
    bool check_crc;                  /* verify files that carry a checksum before their first use */
    struct rfs_encrypted *encrypted; /* opens encrypted files; NULL: files are plain */
    const struct rfs_beneath *beneath; /* where its files are opened; NULL: links are followed */
    struct rfs_store *store;           /* reads URLs; NULL: the source has none */
    bool for_others;                   /* its data is served to other users, too */
    struct rfs_saved *saved; /* where indexes are saved for the next view; NULL: nowhere */
    const struct rfs_options *options; /* these options, for the key of saved data; or NULL */
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
