/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An item of a distributed checkpoint's file: a whole archive of torch.save between two offsets,
 * with one tensor in it. This finds where in the file the tensor's bytes lie.
 *
 * Cost: two reads of 4 KiB for items of torch, as all but the tensor's bytes is at the ends.
 */
#pragma once

#include "base/budget.h"
#include "base/error.h"
#include "formats/dtype.h"
#include "formats/torch/archive.h"
#include "formats/walker.h"

struct rfs_dcp_item {
    const char *file;  /* for messages */
    const char *param; /* the tensor's name, for messages */
    uint64_t offset;   /* of the item in the file */
    uint64_t bytes;
    /* Its tensor, by the metadata. */
    enum rfs_dtype dtype;
    uint32_t ndim;
    const uint64_t *sizes;
};

/* Where the elements of an item's tensor lie in the file. */
struct rfs_dcp_place {
    uint64_t at;                   /* of the first */
    bool strided;                  /* they do not lie row by row */
    uint64_t stride[RFS_MAX_DIMS]; /* in bytes */
};

/*
 * READ and CTX as of rfs_ckpt_walk, of the whole file, which has FILE_BYTES. 0 with *out filled;
 * -EINVAL for an item that runs over the end of the file, is damaged, or holds another tensor than
 * the metadata says; -ENOTSUP for one that is not an archive of torch.save, or which stores fewer
 * elements than it has; -ENOMEM, or READ's error; each with *err filled.
 */
int rfs_dcp_item_find(const struct rfs_dcp_item *item, rfs_read_fn *read, void *ctx,
                      uint64_t file_bytes, struct rfs_dcp_place *out, struct rfs_error *err);

/*
 * The same of an item that holds anything: it is opened and kept, and BUDGET pays its memory; what
 * the metadata says of a tensor is not looked at. Errors also as of rfs_torch_keep.
 */
int rfs_dcp_item_open(const struct rfs_dcp_item *item, rfs_read_fn *read, void *ctx,
                      uint64_t file_bytes, struct rfs_budget *budget, struct rfs_torch *out,
                      struct rfs_error *err);

/*
 * Proves that an item is in the file, and what rfs_torch_prove proves of it, whatever it holds.
 * Returns and errors are those of rfs_dcp_item_open and rfs_torch_prove.
 */
int rfs_dcp_item_prove(const struct rfs_dcp_item *item, rfs_read_fn *read, void *ctx,
                       uint64_t file_bytes, bool all, struct rfs_error *err);

/*
 * Compares the CRC-32 of each record of an item that was found or opened. Returns and cost are
 * those of rfs_zip_verify.
 */
int rfs_dcp_item_verify(const struct rfs_dcp_item *item, rfs_read_fn *read, void *ctx,
                        struct rfs_error *err);
