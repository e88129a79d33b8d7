/* SPDX-License-Identifier: Apache-2.0 */
/* Which files each rank has: the source is listed, and no checkpoint is opened. */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "catalog/scan/aside.h"
#include "catalog/scan/spec.h"
#include "formats/formats.h"
#include "store/mapfile.h"

struct rfs_scanned {
    uint32_t rank;
    char *folder;     /* name within the source, "rank_3"; NULL where there are no rank folders */
    char **files;     /* absolute paths, in the order in which their values count; each owned */
    size_t n_files;   /* without any the rank has no checkpoint */
    bool stands_in;   /* they are another rank's */
    char *weight_map; /* path of the JSON file whose "weight_map" maps values to files; or NULL */
};

struct rfs_scan {
    enum rfs_format format; /* the one of all files */
    /* its format, if it describes itself, rank 0's first file or each file; or NULL */
    const struct rfs_format_row *described;
    bool parts;               /* the ranks are the parts of hfai's dist_ckpt */
    bool model_parallel;      /* the ranks are tensor-parallel, by Meta's names of their files */
    bool whole;               /* one checkpoint for all ranks: rank 0 is the only one */
    bool file;                /* it is one file, whatever lies beside it */
    struct rfs_scanned *data; /* ascending by rank, each rank once */
    size_t n, cap;
    size_t present; /* ranks that have a file; at least 1 */
    char *lost;     /* files of the save that are missing, for messages: "'a' is"; NULL: none */
    char *doubt;    /* why the metadata may be of another save than the files; NULL: nothing */
    struct rfs_aside aside; /* files of tensors that are not read */
    struct rfs_mapfile map; /* what the weight map of rank 0 says; empty: there is none */
    bool exported;          /* it has the manifest of an export */
    bool unfinished;        /* scanning failed because the save has not ended */
    bool failed;            /* memory ran out: files or ranks that were added are missing */
};

/*
 * Scans a source. SPEC->path is absolute and resolved. LOG (may be NULL) hears which rank stands in
 * for which. *out is empty after a failure.
 */
int rfs_scan_open(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                  struct rfs_error *err);
void rfs_scan_free(struct rfs_scan *scan);

/* A save of ModelCheckpoint: the numbers of …-EPOCH_STEP.ckpt. */
struct rfs_save {
    int64_t epoch, step;
};

/* Orders saves by epoch and step, for RFS_SORT and bisection. */
int rfs_scan_saves_compare(const void *a, const void *b);

struct rfs_scan_tree;

/* The saves of a source, as one look at its folders found them. */
struct rfs_saves {
    struct rfs_save *data; /* ascending, by epoch and then by step; owned */
    size_t n, cap;
    int64_t tracked; /* the step that the tracker names, a file that is written when a save ended */
    struct timespec tracked_at; /* when the tracker was written; 0: it names none of them */
    struct rfs_scan_tree *tree; /* files of ranks; owned; NULL: each save has a folder */
    char **names; /* of each, a folder or a file in the source; owned; NULL: they have */
    const struct rfs_format_row *kind; /* that of a series (series.c); NULL: it is none */
    const char *folder;                /* this beginning, before the step; constant */
    int digits;                        /* of the step, at least */
};
#define RFS_TRACKED_ALWAYS INT64_C(-1)  /* saves of this kind have no tracker */
#define RFS_TRACKED_NOTHING INT64_C(-2) /* the tracker is missing, empty, or names none of them */

/*
 * Lists the saves that at least one rank has, as far as the options step and epoch let them
 * through; at least one. SPEC->path is absolute and resolved. To be freed, on failure too. Each
 * folder is listed once; with SPEC->saves, rfs_scan_open lists none of them again.
 *
 * Memory: about 100 bytes for each file of a rank, or 16 for each folder of a save.
 */
int rfs_scan_saves(const struct rfs_source_spec *spec, struct rfs_saves *out,
                   struct rfs_error *err);
/*
 * Refuses a source without saves that has checkpoints in folders below, by names that no list of
 * saves knows: 0 or -ENOENT with *err filled.
 */
int rfs_scan_saves_may_come(const struct rfs_source_spec *spec, struct rfs_error *err);
/*
 * Returns the path of the first rank's file of SPEC's save, which is one of SPEC->saves, malloc'ed;
 * NULL where each save has a folder, or the ranks have files of several runs.
 */
char *rfs_scan_save_file(const struct rfs_source_spec *spec);
void rfs_scan_saves_free(struct rfs_saves *saves);
/* Returns the step in the name of what may be a save, a folder or file in that of a run, or -1. */
int64_t rfs_scan_step_of(const char *name);
/*
 * Says whether a file of that name is written when a save has ended: in the folder of the run, or
 * with IN_SAVE in that of the save.
 */
bool rfs_scan_ends_save(const char *name, bool in_save);

/*
 * Says whether a folder has a checkpoint that describes itself, or the remains of one, for which
 * opening it has the message.
 */
bool rfs_scan_is_described(struct rfs_store *store, const char *path);
/* Returns the format whose first part has that name, or NULL; says whether a folder has one. */
const struct rfs_format_row *rfs_scan_of_parts(const char *name);
bool rfs_scan_has_parts(struct rfs_store *store, const char *path);
/* Says whether a folder has a Checkpoint 2.0 of one rank, which has no metadata. */
bool rfs_scan_is_of_one_rank(struct rfs_store *store, const char *path);
/*
 * Says whether a folder has parts of a checkpoint, such as model-00001-of-00002.safetensors, or an
 * index of parts, or Meta's files of ranks.
 */
bool rfs_scan_is_divided(struct rfs_store *store, const char *path);
/* Says whether a file stands for the parts beside it, by its name: X-00001-of-00002.gguf. */
bool rfs_scan_is_first(const char *path, enum rfs_format format);
/* Says whether a view takes the files of a folder, without rank folders, for one checkpoint. */
bool rfs_scan_is_whole(struct rfs_store *store, const char *path);
/* Says whether a folder has several tensor-parallel ranks, by Meta's names of their files. */
bool rfs_scan_is_model_parallel(struct rfs_store *store, const char *path);
/* Says whether a folder has a checkpoint of any kind, without looking into folders below it. */
bool rfs_scan_is_any(struct rfs_store *store, const char *path);
/* Says whether a folder of that name is a rank's: rank_ and digits. */
bool rfs_scan_is_rank(const char *name);
/*
 * Replaces the message of RC, with which scanning PATH failed, if the names of the files there show
 * a checkpoint of a format that is not read. Returns RC, or -ENOTSUP.
 */
int rfs_scan_foreign(struct rfs_store *store, const char *path, int rc, struct rfs_error *err);
/*
 * Adds the checkpoints in folders below PATH to OUT, a few levels down; some may be left out for
 * lack of memory. Of several whose names differ in numbers it is that of STEP, or the last, unless
 * the numbers are or may be of ranks: then it is all. With
 * FILES, folders of files that are checkpoints each or parts, if there is nothing else.
 */
#define RFS_SCAN_INSIDE_MOST 8
void rfs_scan_inside(struct rfs_store *store, const char *path, int64_t step, bool files,
                     struct rfs_path_list *out);
/*
 * Returns the folder beside PATH whose name differs in numbers alone, and has the greatest, if that
 * is another one; malloc'ed; NULL: there is none.
 */
char *rfs_scan_later(struct rfs_store *store, const char *path);
/*
 * Adds to OUT the file of tensors in a folder that is likely wanted, where a view takes none:
 * "last" or "model" by its name, else the one with the greatest numbers. Adds all where the names
 * differ in more than numbers, or in numbers that are or may be of ranks or parts, and none where
 * the files are parts (rfs_scan_is_divided).
 */
void rfs_scan_likely(struct rfs_store *store, const char *path, struct rfs_path_list *out);

/* Folders or files of ranks, by other names than rank_N, or parts of one checkpoint. */
struct rfs_scan_ranked {
    size_t n;      /* 0: there are none */
    bool files;    /* files; else folders with files of tensors */
    bool parts;    /* parts, and no ranks */
    bool doubtful; /* they may as well be saves */
    char *first;   /* path of the first; owned */
    char *pattern; /* their names, with %d for the number; owned */
};

void rfs_scan_ranked_free(struct rfs_scan_ranked *ranked);
/*
 * Finds the folders or files in PATH that a word in their names calls ranks or parts, if no number
 * is missing between the first and the last; else the first that may be ranks or parts.
 */
void rfs_scan_ranked(struct rfs_store *store, const char *path, struct rfs_scan_ranked *out);

/*
 * Returns what to give for PATH, which is no checkpoint: the first of those below for a message, as
 * "A or B", or an option for folders of ranks; malloc'ed; NULL for none.
 */
char *rfs_scan_named(struct rfs_store *store, const char *path, int64_t step);

/*
 * Gives the name of the checkpoint that counts in FOLDER, malloc'ed; NULL when it holds none, or
 * all of its files are one (rfs_scan_is_divided). 0 or -errno.
 */
int rfs_scan_folder(struct rfs_store *store, const char *folder, char **file,
                    struct rfs_error *err);
