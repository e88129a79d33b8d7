/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests: lists of names and checksums. That of an export has its complete files, for each its
 * size and a hash of its sources, so that the same export can go on, and anybody can check. It is
 * written beside the files as reshard-manifest.json, or by each of several tasks as
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
 * That of verify has whole tensors, which a checkpoint has in any sharding. Equal lists are equal
 * texts: names ascend by their bytes, and nothing says where a list came from.
 *
 *     { "format": "reshard-tensors", "version": 1, "tensors": [ {"name": "layer1.weight", "dtype":
 *     "Float32", "shape": [768, 48], "xxh3_128": "<32 hex digits>"} ] }
 *
 * xxh3_128 is the XXH3-128 of a file, or of the tensor's bytes, row by row and little-endian, as
 * numpy's tobytes() gives them and xxhsum -H128 prints it. A reader passes over members that it
 * does not know; a version above its own it refuses. Not thread-safe.
 */
#pragma once

#include "base/error.h"
#include "base/hash.h"
#include "base/intern.h"
#include "base/store.h"
#include "base/vec.h"
#include "formats/index.h"

#define RFS_MANIFEST_NAME "reshard-manifest.json"

enum rfs_manifest_of { RFS_MANIFEST_FILES, RFS_MANIFEST_TENSORS };

struct rfs_manifest_entry {
    struct rfs_hash hash; /* XXH3-128 */
    /* Members of a file. */
    struct rfs_hash made_of; /* hash of the view's recipe for it, and of its sources' identities */
    uint64_t size;           /* bytes */
    uint64_t written_ms;     /* since the epoch */
    /* Members of a tensor. */
    uint32_t type; /* id in types */
    bool met;      /* mark for users of the list: the tensor was found */
};

struct rfs_manifest {
    enum rfs_manifest_of of;
    char *source, *options; /* owned; may be NULL; these and the next members are those of files */
    uint32_t task, tasks;
    uint64_t total_files;
    struct rfs_intern *names; /* paths below the folder, or printable names of tensors; owned */
    struct rfs_intern *types; /* dtypes and shapes of tensors, as "Float32 [768, 48]"; owned */
    RFS_VEC(struct rfs_manifest_entry) entries; /* indexed by ids of names */
};

/* Makes an empty manifest. 0 or -ENOMEM; to be freed in any case. */
int rfs_manifest_init(struct rfs_manifest *manifest, enum rfs_manifest_of of);
/* Frees what a manifest owns. */
void rfs_manifest_free(struct rfs_manifest *manifest);

/*
 * Returns the entry of a path, or of a tensor's name as a checkpoint has it, valid until the next
 * is put; NULL: there is none.
 */
struct rfs_manifest_entry *rfs_manifest_find(const struct rfs_manifest *manifest, const char *name);
/* Adds an entry, or replaces that of the name. 0 or -ENOMEM. */
int rfs_manifest_put(struct rfs_manifest *manifest, const char *name,
                     const struct rfs_manifest_entry *entry);
/*
 * Adds a tensor; copies NAME, made printable. 0, -ENOMEM, or -EEXIST when the list has that name.
 */
int rfs_manifest_put_tensor(struct rfs_manifest *manifest, const char *name,
                            const struct rfs_type *type, struct rfs_hash hash);
/* Returns whether an entry has the dtype and shape of TYPE. */
bool rfs_manifest_fits(const struct rfs_manifest *manifest, const struct rfs_manifest_entry *entry,
                       const struct rfs_type *type);

/* Returns whether a path can stand in a manifest: it is printable UTF-8. */
bool rfs_manifest_takes(const char *path);

/*
 * Sets *text to the manifest's text, and *name (or NULL) to the name of its file, both malloc'ed. 0
 * or -ENOMEM.
 */
int rfs_manifest_text(const struct rfs_manifest *manifest, char **name, char **text, size_t *size);
/*
 * Adds the entries of TEXT, which ends with a NUL, and takes over its other members. FILE is for
 * messages. 0, -ENOMEM, or -EINVAL with *err filled for a text that is no manifest, is damaged,
 * names a file that cannot be in the folder, or a tensor twice. Exported for tests.
 */
int rfs_manifest_parse(const char *file, const char *text, size_t size,
                       struct rfs_manifest *manifest, struct rfs_error *err);
/* Reads a file so. 0, or -errno with *err filled, also when it is larger than 256 MiB. */
int rfs_manifest_read(struct rfs_store *store, const char *path, struct rfs_manifest *manifest,
                      struct rfs_error *err);

/* Returns whether a name is that of a manifest. */
bool rfs_manifest_is_name(const char *name);

/* Returns the milliseconds since the epoch. */
uint64_t rfs_manifest_now(void);
