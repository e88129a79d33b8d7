/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The complete files of an export: for each its size, the XXH3-128 of its bytes, and a name for its
 * sources, so that the same export can go on, and anybody can check. Written beside the files as
 * reshard-manifest.json, or by each of several tasks as reshard-manifest.K.json; together they
 * count as one, and of two entries for one file the later.
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
 * are written as xxhsum -H128 prints them. Not thread-safe.
 */
#pragma once

#include "base/error.h"
#include "base/intern.h"
#include "base/vec.h"
#include "tool/common/hash.h"

#define RFS_MANIFEST_NAME "reshard-manifest.json"
#define RFS_MANIFEST_BYTES                                                                         \
    ((size_t)256 << 20) /* larger ones are refused: 65,536 files take 16 MiB */

struct rfs_manifest_entry {
    uint64_t size;           /* bytes */
    struct rfs_hash hash;    /* XXH3-128 of the file */
    struct rfs_hash made_of; /* of the view's recipe for it, and of its sources' identities */
    uint64_t written_ms;     /* since the epoch */
};

struct rfs_manifest {
    char *source, *options; /* owned; may be NULL */
    uint32_t task, tasks;
    uint64_t total_files;
    struct rfs_intern *paths;                   /* of the entries, below the folder; owned */
    RFS_VEC(struct rfs_manifest_entry) entries; /* by the paths' ids */
};

/* 0 or -ENOMEM. To be freed in any case. */
int rfs_manifest_init(struct rfs_manifest *manifest);
void rfs_manifest_free(struct rfs_manifest *manifest);

/* NULL when there is none; valid until the next is put. */
const struct rfs_manifest_entry *rfs_manifest_find(const struct rfs_manifest *manifest,
                                                   const char *path);
/* Adds it, or takes the place of the one that was there. 0 or -ENOMEM. */
int rfs_manifest_put(struct rfs_manifest *manifest, const char *path,
                     const struct rfs_manifest_entry *entry);

/* Whether a path can stand in a manifest: it is printable UTF-8. */
bool rfs_manifest_takes(const char *path);

/* The text, malloc'ed. 0 or -ENOMEM. */
int rfs_manifest_text(const struct rfs_manifest *manifest, char **text, size_t *size);
/*
 * Adds the entries of TEXT (with a NUL after it), and takes its facts about the whole. NAME is for
 * messages. 0, -ENOMEM, or -EINVAL with *err filled for a text that is no manifest, is damaged, or
 * names a file that cannot be in the folder.
 */
int rfs_manifest_parse(const char *name, const char *text, size_t size,
                       struct rfs_manifest *manifest, struct rfs_error *err);

/* "reshard-manifest.json", or that of one task of several; malloc'ed, or NULL. */
char *rfs_manifest_name(uint32_t task, uint32_t tasks);
/* Whether a name is one of those. */
bool rfs_manifest_is_name(const char *name);
