/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of whole tensors and their checksums, which is the same for a checkpoint in any sharding,
 * and equal lists are equal texts: names ascend by their bytes, and nothing says where it came
 * from.
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

#define RFS_SUM_DTYPE 24

struct rfs_sum_entry {
    uint32_t ndim;
    uint64_t dims[RFS_MAX_DIMS];
    char dtype[RFS_SUM_DTYPE]; /* "Float32", "map" */
    struct rfs_hash hash;
    bool met; /* its user's */
};

struct rfs_sums {
    struct rfs_intern *names;              /* of the entries, printable; owned */
    RFS_VEC(struct rfs_sum_entry) entries; /* by the names' ids */
};

/* 0 or -ENOMEM. To be freed in any case. */
int rfs_sums_init(struct rfs_sums *sums);
void rfs_sums_free(struct rfs_sums *sums);

/* Adds one. NAME is made printable. 0, -ENOMEM, or -EEXIST when there is one of that name. */
int rfs_sums_put(struct rfs_sums *sums, const char *name, const struct rfs_type *type,
                 struct rfs_hash hash);
/* The one of a name as a checkpoint has it, or NULL. */
struct rfs_sum_entry *rfs_sums_find(const struct rfs_sums *sums, const char *name);
/* Whether a tensor of TYPE is of its dtype and shape. */
bool rfs_sums_fit(const struct rfs_sum_entry *entry, const struct rfs_type *type);

/* The text, malloc'ed. 0 or -ENOMEM. */
int rfs_sums_text(const struct rfs_sums *sums, char **text, size_t *size);
/* FILE is for messages. 0, -ENOMEM, or -EINVAL with *err filled. */
int rfs_sums_parse(const char *file, const char *text, size_t size, struct rfs_sums *sums,
                   struct rfs_error *err);
/* Writes it, under a temporary name first. 0, or -errno with *err filled. */
int rfs_sums_save(const struct rfs_sums *sums, const char *path, struct rfs_error *err);
