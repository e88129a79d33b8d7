/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of verify: a list of whole tensors and their checksums, which a checkpoint has in
 * any sharding. Equal lists are equal texts: names ascend by their bytes, and nothing says where a
 * list came from.
 *
 *     { "format": "reshard-tensors", "version": 1, "tensors": [ {"name": "layer1.weight", "dtype":
 *     "Float32", "shape": [768, 48], "xxh3_128": "<32 hex digits>"} ] }
 *
 * xxh3_128 is the XXH3-128 of the tensor's bytes, row by row and little-endian, as numpy's
 * tobytes() gives them and xxhsum -H128 prints it. A reader passes over members that it does not
 * know; a version above its own it refuses. Not thread-safe.
 */
#pragma once

#include "base/error.h"
#include "base/intern.h"
#include "base/vec.h"
#include "formats/index.h"
#include "tool/common/hash.h"

#define RFS_SUMS_BYTES ((size_t)256 << 20) /* larger ones are refused */

#define RFS_SUMS_DTYPE 24 /* bytes of a dtype's name, with its NUL */

struct rfs_sums_entry {
    uint32_t ndim;
    uint64_t dims[RFS_MAX_DIMS];
    char dtype[RFS_SUMS_DTYPE]; /* "Float32", "map" */
    struct rfs_hash hash;
    bool met; /* mark for users of the list: the tensor was found */
};

struct rfs_sums {
    struct rfs_intern *names;               /* names of the entries, printable; owned */
    RFS_VEC(struct rfs_sums_entry) entries; /* indexed by ids of names */
};

/* Makes an empty list. 0 or -ENOMEM; to be freed in any case. */
int rfs_sums_init(struct rfs_sums *sums);
/* Frees what a list owns. */
void rfs_sums_free(struct rfs_sums *sums);

/*
 * Adds a tensor; copies NAME, made printable. 0, -ENOMEM, or -EEXIST when the list has that name.
 */
int rfs_sums_put(struct rfs_sums *sums, const char *name, const struct rfs_type *type,
                 struct rfs_hash hash);
/* Returns the entry of a name as a checkpoint has it, or NULL. */
struct rfs_sums_entry *rfs_sums_find(const struct rfs_sums *sums, const char *name);
/* Returns whether an entry has the dtype and shape of TYPE. */
bool rfs_sums_fit(const struct rfs_sums_entry *entry, const struct rfs_type *type);

/* Sets *text to the list's text, malloc'ed. 0 or -ENOMEM. */
int rfs_sums_text(const struct rfs_sums *sums, char **text, size_t *size);
/*
 * Reads a text into an empty list; FILE is for messages. 0, -ENOMEM, or -EINVAL with *err filled.
 */
int rfs_sums_parse(const char *file, const char *text, size_t size, struct rfs_sums *sums,
                   struct rfs_error *err);
/* Writes the text to a file, under a temporary name first. 0, or -errno with *err filled. */
int rfs_sums_save(const struct rfs_sums *sums, const char *path, struct rfs_error *err);
