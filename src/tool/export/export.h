/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard export`: the files of a mount, written into a folder or a bucket. The steps, and their
 * files:
 *
 *     list      the view's files, planned (their headers are read), and divided over the tasks;
 *               task.c
 *     check     a file that is there already stays if it has the bytes that would be written;
 *               resume.c
 *     write     the others, in waves of files that take from the same sources; write_files.c
 *     verify    instead of these: the files against the manifest; verify_export.c
 *
 * Nothing is written before all of the list is planned, all that is there is checked, and there is
 * room.
 */
#pragma once

#include "base/progress.h"
#include "reshard.h"
#include "tool/common/args.h"
#include "tool/common/manifest.h"
#include "tool/export/dest.h"

#include <pthread.h>

/* ---- tasks ----------------------------------------------------------------------------------- */

/* A process among tasks, as its launcher says in the environment. */
struct rfs_task {
    uint32_t number;    /* number below count */
    uint32_t count;     /* 1: it is alone */
    const char *engine; /* name of what started the tasks, a constant; NULL: none */
    /* Constants: why other processes may export the same files, and what to do. NULL: none do. */
    const char *warning, *remedy;
};

/*
 * Finds the task by the variables that torchrun, mpirun of Open MPI, of MPICH, or srun set, the
 * first of them that are there, and by those of Slurm's arrays. 0, or -EINVAL with *err filled when
 * they contradict themselves.
 */
int rfs_task_detect(struct rfs_task *out, struct rfs_error *err);

/*
 * Sets task_of[i] to the task of file i: files by size, the largest first, each to the task that
 * has the fewest bytes so far; among equals the lower number goes first. O(n log n). 0 or -ENOMEM.
 * Exported for tests.
 */
int rfs_task_divide(const uint64_t *sizes, size_t n, uint32_t tasks, uint32_t *task_of);

/* ---- the command ----------------------------------------------------------------------------- */

struct rfs_export_options {
    const char *source; /* borrowed; NULL: --verify against the manifest alone */
    const char *target;
    struct rfs_settings view; /* options of the view; of those given twice, the later counts */
    struct rfs_ranks ranks;
    unsigned threads;
    bool no_fsync;
    bool verify;
    bool trust;
    bool json;
    bool force;
    struct rfs_task task; /* --task; count is 0 when it is not given */
};

extern const struct rfs_argument rfs_export_arguments[];
/* Checks the arguments together. 0, or -EINVAL with *err filled. Exported for tests. */
int rfs_export_options_check(struct rfs_export_options *options, struct rfs_error *err);

enum rfs_export_todo {
    RFS_EXPORT_WRITE,   /* nothing is there */
    RFS_EXPORT_REPLACE, /* something else is, and --force is given */
    RFS_EXPORT_KEEP,    /* the file is there */
};

struct rfs_export_file {
    char *path;    /* path below the folder; owned */
    uint64_t id;   /* id in the view */
    uint64_t size; /* bytes; for another task's file the size of a file of its kin */
    bool planned;
    mode_t mode;   /* permission bits of the view's file */
    uint32_t task; /* number of the task that writes it */
    enum rfs_export_todo todo;
};

struct rfs_export {
    const struct rfs_export_options *options;
    struct rfs_task task;
    unsigned threads;
    reshard_view *view; /* owned; NULL: --verify of the manifest alone */
    struct rfs_dest dest;
    RFS_VEC(struct rfs_export_file) files; /* files of the wanted ranks, in the view's order */
    struct rfs_intern *shown_paths;        /* paths of all files of the view, of any rank; owned */
    struct rfs_intern *source_paths;       /* paths of all source files; owned */
    RFS_VEC(struct rfs_hash) source_ids;   /* their identities, by ids of source_paths */
    struct rfs_manifest known; /* entries of manifests that were there, for files of the view; all
                                  without a view */
    struct rfs_manifest stale; /* the other entries */
    /* This task's manifest while it is written. */
    struct {
        pthread_mutex_t lock; /* guards the rest; a leaf lock, not held while saving */
        struct rfs_manifest manifest;
        bool saving;
        double due; /* time of the next save, on the clock of rfs_progress_now */
    } saver;
    struct rfs_progress progress;

    uint64_t bytes_written, bytes_kept, files_written, files_kept;
    uint64_t files_removed; /* files of another export */
    uint64_t bytes_taken;   /* written bytes that the file system took over from sources */
};

static inline bool rfs_export_is_mine(const struct rfs_export *export,
                                      const struct rfs_export_file *file)
{
    return file->task == export->task.number;
}

/* ---- the steps: 0, or -errno with *err filled ------------------------------------------------ */

/* Lists the files, plans those of this task, and notes the identities of their sources. */
int rfs_export_list(struct rfs_export *export, struct rfs_error *err);
/* Reads the manifests; refuses a folder that holds something else, or stale files. */
int rfs_export_read_manifests(struct rfs_export *export, struct rfs_error *err);
/* Finds which of this task's files are there; refuses files that differ. */
int rfs_export_check(struct rfs_export *export, struct rfs_error *err);
/*
 * Removes stale files, and writes this task's files that are not there, and the manifest of all
 * that are complete.
 */
int rfs_export_write(struct rfs_export *export, struct rfs_error *err);
/* Prints the differences; -EBADMSG if there are any. */
int rfs_export_verify(struct rfs_export *export, struct rfs_error *err);

/* ---- for several steps ----------------------------------------------------------------------- */

/* Returns whether entry I of the stale is still a file there. */
bool rfs_export_is_stale(const struct rfs_export *export, uint32_t i);
/* Counts the manifests of exports by other numbers of tasks; REMOVE: also removes them. */
unsigned rfs_export_other_manifests(struct rfs_export *export, uint32_t tasks, bool remove);

/* Hashes the recipe of a file and the identities of its sources. 0 or -errno. From any thread. */
int rfs_export_made_of(const struct rfs_export *export, const struct rfs_export_file *file,
                       struct rfs_hash *out);

/*
 * Sets *out to the XXH3-128 of a file of SIZE bytes in the folder, and compares it with the view's
 * file AS, unless that is NULL; counts the bytes as progress. 0, -EINVAL for another size or other
 * bytes, or another -errno with *err filled.
 */
int rfs_export_sum(struct rfs_export *export, const char *path, uint64_t size,
                   const struct rfs_export_file *as, struct rfs_hash *out, struct rfs_error *err);

/* ---- waves (write_files.c); exported for tests ----------------------------------------------- */

/* Files of a wave, at most: twice as many descriptors, and as many incomplete files at a time. */
#define RFS_WAVE_MOST 32

/* What decides a file's position in the order. */
struct rfs_wave_file {
    size_t file;             /* the caller's number for it */
    uint64_t size;           /* bytes */
    uint64_t cut;            /* a piece ends here as well; 0 or SIZE: nowhere */
    const uint32_t *sources; /* numbers of source files, each once; borrowed */
    uint32_t n_sources;
};

/*
 * Sorts files so that those that share sources are neighbours. FLAT: they are the files of one
 * whole checkpoint, which name the same sources but take different bytes, and are not sorted.
 */
void rfs_wave_sort(struct rfs_wave_file *files, size_t n, bool flat);

/*
 * Sets *count to how many of the first of N sorted files make a wave, at least one if there is any,
 * and *share to whether they share sources. 0 or -ENOMEM.
 */
int rfs_wave_next(const struct rfs_wave_file *files, size_t n, unsigned threads, bool flat,
                  size_t *count, bool *share);

/* A step: equal bytes for some files, which are read for the first of them. */
struct rfs_wave_item {
    uint64_t offset; /* offset in each file, bytes */
    uint32_t size;   /* bytes */
    uint32_t n;      /* files */
    size_t first;    /* index in members */
};

struct rfs_wave_plan {
    RFS_VEC(struct rfs_wave_item) items; /* items in the order of their beginning */
    RFS_VEC(uint32_t) members;           /* positions in the wave */
};

/* Returns the number of pieces of a file; PIECE is the size of one, bytes. */
uint64_t rfs_wave_pieces(const struct rfs_wave_file *file, uint64_t piece);
/* Sets offset and size of the I-th piece of a file. */
void rfs_wave_piece(const struct rfs_wave_file *file, uint64_t piece, uint64_t i, uint64_t *offset,
                    uint64_t *size);

/* The sources of a piece as two words, which are equal for equal bytes. */
struct rfs_wave_key {
    uint64_t word[2];
};
/*
 * Makes the items of a wave of N files, at most RFS_WAVE_MOST, in pieces of PIECE bytes. keys[f][i]
 * is the key of the I-th piece of file F; KEYS NULL: no two pieces are equal. 0 or -ENOMEM; to be
 * freed in any case.
 */
int rfs_wave_plan(const struct rfs_wave_file *files, size_t n, uint64_t piece,
                  struct rfs_wave_key *const *keys, struct rfs_wave_plan *out);
/* Frees what a plan owns. */
void rfs_wave_plan_free(struct rfs_wave_plan *plan);
