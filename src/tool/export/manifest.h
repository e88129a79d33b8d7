/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest: the complete files of an export, for each its size, the XXH3-128 of its bytes, and
 * a hash of its sources, so that the same export can go on, and anybody can check. It is written
 * beside the files as reshard-manifest.json, or by each of several tasks as
 * reshard-manifest.K.json; together these count as one, and of two entries for one file the later.
 *
 *     {
 *     "format": "reshard-manifest",
 *     "version": 1,
 *     "program": "reshard 1.0.0",
 *     "source": "/data/ckpt",                   as text: printable, for people
 *     "options": "src_strategy=…,…",            likewise
 *     "task": 0, "tasks": 1,
 *     "total_files": 4,                         of the whole export, all tasks
 *     "files": [
 *     {"path": "rank_0/checkpoint_0.ckpt", "size": 310, "xxh3_128": "<32 hex digits>",
 *      "made_of": "<32 hex digits>", "written_ms": 1763700000000}
 *     ]
 *     }
 *
 * A reader passes over members that it does not know; a version above its own it refuses. Hashes
 * are written as xxhsum -H128 prints them. Not thread-safe, but for rfs_manifest_saver_add.
 */
#pragma once

#include "base/error.h"
#include "base/intern.h"
#include "base/vec.h"
#include "tool/common/hash.h"
#include "tool/export/dest.h"

#include <pthread.h>

#define RFS_MANIFEST_NAME "reshard-manifest.json"
#define RFS_MANIFEST_BYTES                                                                         \
    ((size_t)256 << 20) /* larger ones are refused: 65,536 files take 16 MiB */

struct rfs_manifest_entry {
    uint64_t size;           /* bytes */
    struct rfs_hash hash;    /* XXH3-128 of the file */
    struct rfs_hash made_of; /* hash of the view's recipe for it, and of its sources' identities */
    uint64_t written_ms;     /* since the epoch */
};

struct rfs_manifest {
    char *source, *options; /* owned; may be NULL */
    uint32_t task, tasks;
    uint64_t total_files;
    struct rfs_intern *paths;                   /* paths of the entries, below the folder; owned */
    RFS_VEC(struct rfs_manifest_entry) entries; /* indexed by ids of paths */
};

/* Makes an empty manifest. 0 or -ENOMEM; to be freed in any case. */
int rfs_manifest_init(struct rfs_manifest *manifest);
/* Frees what a manifest owns. */
void rfs_manifest_free(struct rfs_manifest *manifest);

/* Returns the entry of a path, valid until the next is put; NULL: there is none. */
const struct rfs_manifest_entry *rfs_manifest_find(const struct rfs_manifest *manifest,
                                                   const char *path);
/* Adds an entry, or replaces that of the path. 0 or -ENOMEM. */
int rfs_manifest_put(struct rfs_manifest *manifest, const char *path,
                     const struct rfs_manifest_entry *entry);

/* Returns whether a path can stand in a manifest: it is printable UTF-8. */
bool rfs_manifest_takes(const char *path);

/* Sets *text to the manifest's text, malloc'ed. 0 or -ENOMEM. */
int rfs_manifest_text(const struct rfs_manifest *manifest, char **text, size_t *size);
/*
 * Adds the entries of TEXT, which ends with a NUL, and takes over its other members. NAME is for
 * messages. 0, -ENOMEM, or -EINVAL with *err filled for a text that is no manifest, is damaged, or
 * names a file that cannot be in the folder.
 */
int rfs_manifest_parse(const char *name, const char *text, size_t size,
                       struct rfs_manifest *manifest, struct rfs_error *err);

/* Returns the name of the manifest of a task, malloc'ed, or NULL when out of memory. */
char *rfs_manifest_name(uint32_t task, uint32_t tasks);
/* Returns whether a name is that of a manifest. */
bool rfs_manifest_is_name(const char *name);

/*
 * The manifest of this task while it is written: saved when a file is complete, but not so often
 * that saving takes most of the time, and at the end.
 */
struct rfs_manifest_saver {
    const struct rfs_dest *dest;
    bool sync;
    pthread_mutex_t lock; /* guards the rest; a leaf lock, not held while saving */
    struct rfs_manifest manifest;
    bool saving;
    double due; /* time of the next save, on the clock of rfs_progress_now */
};

/* Begins with an empty manifest. 0 or -ENOMEM; to be destroyed in any case. */
int rfs_manifest_saver_init(struct rfs_manifest_saver *saver, const struct rfs_dest *dest,
                            bool sync);
/* Frees the manifest. */
void rfs_manifest_saver_destroy(struct rfs_manifest_saver *saver);

/*
 * Adds a complete file, and saves the manifest if it is due. 0, or -errno with *err filled when it
 * could not be saved. From any thread.
 */
int rfs_manifest_saver_add(struct rfs_manifest_saver *saver, const char *path,
                           const struct rfs_manifest_entry *entry, struct rfs_error *err);
/* Saves the manifest now. 0, or -errno with *err filled. */
int rfs_manifest_saver_save(struct rfs_manifest_saver *saver, struct rfs_error *err);

/* Returns the milliseconds since the epoch. */
uint64_t rfs_manifest_now(void);
