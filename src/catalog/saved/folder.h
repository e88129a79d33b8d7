/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data kept on disk between views: a folder of files that may be deleted at any time, also while
 * they are in use. All of it is optional, so nothing here fails: files that cannot be read or are
 * not trusted are ignored, as if they did not exist; files that cannot be written are skipped (the
 * reason is logged once).
 *
 * A folder, or a file in it, is trusted if it belongs to the effective user and only that user may
 * write it; both are checked through their descriptors, and are never symbolic links. A process
 * whose real and effective users differ has no such folder.
 *
 * A file is written under another name and renamed, so that readers see either the complete new
 * file or the old one. After each writing the files that were used least recently go, until
 * RFS_SAVED_FILES and RFS_SAVED_BYTES hold.
 *
 * Threads: all functions but open and close; a file or a draft belongs to one thread at a time, but
 * for rfs_saved_body.
 */
#pragma once

#include "base/log.h"
#include "catalog/saved/bytes.h"

#define RFS_SAVED_FILES 512
#define RFS_SAVED_BYTES (UINT64_C(1) << 30)

struct rfs_saved;

/*
 * The folder at PATH, or reshardfs in $XDG_CACHE_HOME or ~/.cache if PATH is NULL. The environment
 * is looked at now, the folder at each use; it is made when something is to be written. NULL when
 * there is no such place, or no memory. LOG (may be NULL) is borrowed.
 */
struct rfs_saved *rfs_saved_open(const char *path, struct rfs_log *log);
void rfs_saved_close(struct rfs_saved *saved);

/*
 * Makes the folder now, before a sandbox forbids it. Returns its path, owned by SAVED; NULL without
 * a trusted folder.
 */
const char *rfs_saved_make(struct rfs_saved *saved);

/*
 * Opens the file of that key for reading. False when there is none to be trusted; *file needs no
 * end then. SAVED may be NULL.
 */
bool rfs_saved_read(struct rfs_saved *saved, enum rfs_saved_kind kind, const char *key,
                    struct rfs_saved_file *file);

/* A file in the making. */
struct rfs_saved_draft {
    struct rfs_saved *saved;
    enum rfs_saved_kind kind;
    const char *key; /* borrowed */
    int dir, fd;
    int failed; /* 0 or the -errno of the first failure; nothing is written then */
    uint64_t end;
    char name[64]; /* until it has its own */
};
/* False when nothing can be written; *draft needs nothing then. SAVED may be NULL. */
bool rfs_saved_begin(struct rfs_saved *saved, enum rfs_saved_kind kind, const char *key,
                     struct rfs_saved_draft *draft);
/* Adds to the body, and gives where in the file that is. */
uint64_t rfs_saved_add(struct rfs_saved_draft *draft, const void *bytes, size_t n);
/* Does away with it, in place of the next. */
void rfs_saved_drop(struct rfs_saved_draft *draft);
/*
 * Adds the table and puts the file into its place. To follow begin in any case, or drop. False when
 * it was not written.
 */
bool rfs_saved_finish(struct rfs_saved_draft *draft, const struct rfs_bytes *table);
