/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard export`: the files of a mount, written into a folder. The steps, each in a file of its
 * own:
 *
 *     list      the view's files, planned (their headers are read), and divided over the tasks
 *     check     a file that is there already is kept if it has the bytes that would be written
 *     write     the others, in waves of files that take from the same sources (wave.h)
 *     verify    instead of these: the files against the manifest
 *
 * Nothing is written before all of the list is planned, all that is there is checked, and there is
 * room.
 */
#pragma once

#include "reshard.h"
#include "tool/common/progress.h"
#include "tool/export/dest.h"
#include "tool/export/manifest.h"
#include "tool/export/options.h"
#include "tool/export/record.h"

enum rfs_export_todo {
    RFS_EXPORT_WRITE,   /* it is not there */
    RFS_EXPORT_REPLACE, /* something else is, and --force is given */
    RFS_EXPORT_KEEP,    /* it is there */
};

struct rfs_export_file {
    char *path;    /* below the folder; owned */
    uint64_t id;   /* in the view */
    uint64_t size; /* bytes; of another task's file, those of a file of its kin */
    bool planned;
    mode_t mode;   /* permission bits of the view's file */
    uint32_t task; /* whose it is */
    enum rfs_export_todo todo;
};

struct rfs_export {
    const struct rfs_export_options *options;
    struct rfs_task task;
    unsigned threads;
    reshard_view *view; /* owned; NULL: --verify of the manifest alone */
    struct rfs_dest dest;
    RFS_VEC(struct rfs_export_file) files; /* in the view's order; their ranks are asked for */
    struct rfs_intern *shown_paths;        /* owned; of all files of the view, of any rank */
    struct rfs_intern *source_paths;       /* owned; of all source files, and */
    RFS_VEC(struct rfs_hash) source_ids;   /* by its ids: the identity of each */
    struct rfs_manifest known;             /* the entries of manifests that were there, but */
    /* those of files that the view does not show; none without one */
    struct rfs_manifest stale;
    struct rfs_record record; /* this task's own */
    struct rfs_progress progress;

    uint64_t bytes_written, bytes_kept, files_written, files_kept;
    uint64_t files_removed; /* of another export */
    uint64_t bytes_taken;   /* of those written, that the file system took over from sources */
};

static inline bool rfs_export_is_mine(const struct rfs_export *export,
                                      const struct rfs_export_file *file)
{
    return file->task == export->task.number;
}

/* ---- the steps: 0, or -errno with *err filled ------------------------------------------------ */

int rfs_export_list(struct rfs_export *export, struct rfs_error *err);
/* Reads the manifests; refuses a folder that holds something else. */
int rfs_export_look(struct rfs_export *export, struct rfs_error *err);
int rfs_export_check(struct rfs_export *export, struct rfs_error *err);
int rfs_export_write(struct rfs_export *export, struct rfs_error *err);
/* Prints the differences; -EBADMSG if there are any. */
int rfs_export_verify(struct rfs_export *export, struct rfs_error *err);

/* ---- files of another export; stale.c -------------------------------------------------------- */

/*
 * Moves entries that the view does not show from the known to the stale. 0, or -ENOMEM with *err
 * filled.
 */
int rfs_export_sort_out(struct rfs_export *export, struct rfs_error *err);
/* Whether entry I of the stale is still a file there. */
bool rfs_export_is_stale(const struct rfs_export *export, uint32_t i);
/* Unless they are to be removed. 0, or -errno with *err filled. */
int rfs_export_refuse_stale(const struct rfs_export *export, struct rfs_error *err);
int rfs_export_remove_stale(struct rfs_export *export, struct rfs_error *err);
/* How many manifests there are but those of TASKS tasks; REMOVE: and removes them. */
unsigned rfs_export_other_manifests(const struct rfs_export *export, uint32_t tasks, bool remove);

/* ---- for all steps --------------------------------------------------------------------------- */

/* A name for the sources of a file and their identities. 0 or -errno. From any thread. */
int rfs_export_made_of(const struct rfs_export *export, const struct rfs_export_file *file,
                       struct rfs_hash *out);

/* Memory for bytes that may be plain text of encrypted sources; NULL when out of memory. */
void *rfs_export_buffer(const struct rfs_export *export, size_t bytes);
void rfs_export_buffer_free(const struct rfs_export *export, void *buffer, size_t bytes);

/*
 * The XXH3-128 of a file of SIZE bytes in the folder; counted as progress. 0, -errno, or -EINVAL
 * for another size.
 */
int rfs_export_hash(struct rfs_export *export, const char *path, uint64_t size,
                    struct rfs_hash *out);

/* Fails as the view does where a source fails. CODE, with *err filled. */
int rfs_export_source_failed(struct rfs_export *export, const struct rfs_export_file *file,
                             int code, struct rfs_error *err);
