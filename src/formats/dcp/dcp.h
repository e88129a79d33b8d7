/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of torch.distributed.checkpoint: .metadata, or __N.metadata of each rank together, has
 * the dtype and the full shape of each tensor, and its chunks. For each chunk it names a file and a
 * range of bytes: its item, an archive of torch.save. dcp_metadata.c draws .metadata.
 *
 * Tensors have the names of the metadata: the keys of nested dicts, joined by dots. Values that are
 * no tensors are stored as items, too: they are the objects of the checkpoint.
 *
 * Cost: opening takes linear time, and O(n log n) to sort the chunks of each tensor. For a moment
 * it takes the memory of rfs_dcp_memory. Locating a chunk takes two reads of 4 KiB.
 *
 * Items may be compressed by torch's extension stream.zstd/1: each is read as store/packed.h says,
 * and decompressed when it is located. Their places count its plain bytes.
 */
#pragma once

#include "base/budget.h"
#include "formats/chunks/boxes.h"
#include "formats/seen.h"
#include "formats/torch/torch.h"

/* Opens a folder whose .metadata is file 0, or which has the metadata of each rank in all files. */
rfs_chunks_open_fn rfs_dcp_open;
/* The names in such a folder, and what they mean (seen.h). */
extern const struct rfs_seen_kind rfs_dcp_seen;
/* A reason for doubt: metadata of single ranks is beside that of all ranks. */
#define RFS_DCP_DOUBT                                                                              \
    "metadata of single ranks is beside '.metadata': another save into the folder may have "       \
    "replaced files"

/* Says whether a checkpoint is of this format. */
bool rfs_dcp_owns(const struct rfs_chunks *chunks);

/*
 * Appends what the arguments of a training by Megatron say that such a checkpoint has among its
 * values (formats/torch/arguments.h); nothing if it has none. 0, or -errno with *err filled.
 */
int rfs_dcp_arguments(struct rfs_chunks *chunks, struct rfs_bytes *out, struct rfs_error *err);
/*
 * Opens the item of an object of such a checkpoint. BUDGET pays for its memory. 0; -ENOTSUP for one
 * with names that are not read, -EFBIG beyond the budget, -EINVAL for a damaged one, or a read's
 * error, each with *err filled. Any thread may do so.
 */
int rfs_dcp_open_object(struct rfs_chunks *chunks, const struct rfs_chunked_object *object,
                        struct rfs_budget *budget, struct rfs_torch *out, struct rfs_error *err);

/*
 * Checks that no two objects of such a checkpoint share bytes, so that reading all of them costs no
 * more than their files have. 0, -EINVAL or -ENOMEM with *err filled.
 */
int rfs_dcp_objects_apart(const struct rfs_chunks *chunks, struct rfs_error *err);

/*
 * Reads a .metadata, and declares, stores and finishes what it describes. Returns and errors are
 * those of rfs_dcp_open. It is torch's, or, for CHUNKS of a keyed format, HyperParallel's. Other
 * files than dcp_metadata.c call it for tests alone.
 */
int rfs_dcp_describe(const struct rfs_bytes_source *from, struct rfs_chunks *chunks,
                     struct rfs_error *err);
/*
 * Reads SOURCE's files, the metadata of all ranks together or of each, and describes as above. The
 * types and sizes of a tensor must be equal in all files that have it. A box that several have is
 * the first one's, with copies on trust; an object is the first one's.
 */
int rfs_dcp_describe_files(struct rfs_chunks *chunks, const struct rfs_chunks_source *source,
                           struct rfs_error *err);

/* ---- items ----------------------------------------------------------------------------------- */

/* An item of a file: an archive of torch.save between two offsets, with one tensor in it. */
struct rfs_dcp_file_item {
    const char *file;  /* for messages */
    const char *param; /* the tensor's name, for messages */
    uint64_t offset;   /* where the item begins in the file */
    uint64_t bytes;
    uint64_t shown; /* offset for messages; that of a compressed item */
    /* The tensor in it, by the metadata. */
    enum rfs_dtype dtype;
    uint32_t ndim;
    const uint64_t *sizes;
};

/*
 * Finds the elements of an item's tensor. FROM is the whole file. 0 with *out filled, without its
 * file; -EINVAL for an item that runs over the end of the file, is damaged, or holds another tensor
 * than the metadata says; -ENOTSUP for one that is not an archive of torch.save, or which stores
 * fewer elements than it has; -ENOMEM, or a read's error; each with *err filled. Takes two reads of
 * 4 KiB for items of torch, as all but the tensor's bytes is at the ends. Other files than dcp.c
 * call it for tests alone.
 */
int rfs_dcp_item_find(const struct rfs_dcp_file_item *item, const struct rfs_bytes_source *from,
                      struct rfs_chunk_place *out, struct rfs_error *err);

/*
 * Proves that an item is in the file, and what rfs_torch_prove proves of it, whatever it holds.
 * Returns and errors are those of rfs_dcp_item_find and rfs_torch_prove. Other files than dcp.c
 * call it for tests alone.
 */
int rfs_dcp_item_prove(const struct rfs_dcp_file_item *item, const struct rfs_bytes_source *from,
                       bool all, struct rfs_error *err);
