/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of torch.distributed.checkpoint: .metadata has the dtype and the full shape
 * of each tensor, and its chunks. For each chunk it names a file and a range of bytes: its item, an
 * archive of torch.save. dcp_metadata.c draws the first, dcp_item.c finds a chunk's
 * elements in the second.
 *
 * Tensors have the names of the metadata: the keys of nested dicts, joined by dots. Values that are
 * no tensors are stored as items, too: they are the objects of the boxes.
 *
 * Cost of opening: linear time, but for sorting the chunks of each tensor; memory for a moment
 * rfs_dcp_memory. Of locating a chunk: two reads of 4 KiB.
 */
#pragma once

#include "base/budget.h"
#include "formats/chunks/chunks.h"
#include "formats/torch/archive.h"

/*
 * As rfs_chunks_open, of a FOLDER whose .metadata is file 0 of FILES. Errors: -EINVAL for metadata
 * that is damaged or contradicts itself, -ENOTSUP for a kind that is not read, -EFBIG for a file
 * that would take too much memory.
 */
int rfs_dcp_open(const char *folder, struct rfs_files *files, struct rfs_tables *tables,
                 struct rfs_log *log, struct rfs_chunks **out, struct rfs_error *err);

/* Whether boxes are of this format. */
bool rfs_chunks_are_dcp(const struct rfs_chunks *boxes);

/*
 * Opens the item of an object of such boxes, whose memory BUDGET pays. 0; -ENOTSUP for one with
 * names that are not read, -EFBIG beyond the budget, -EINVAL for a damaged one, or a read's error,
 * each with *err filled. Any thread may do so.
 */
int rfs_dcp_open_object(struct rfs_chunks *boxes, const struct rfs_chunked_object *object,
                        struct rfs_budget *budget, struct rfs_torch *out, struct rfs_error *err);

/*
 * Whether no two objects of such boxes share bytes, so that reading all of them costs no more than
 * their files have: 0, -EINVAL or -ENOMEM with *err filled.
 */
int rfs_dcp_objects_apart(const struct rfs_chunks *boxes, struct rfs_error *err);

/*
 * Proves that the item of an object is in its file, and a file of torch.save; rfs_torch_prove says
 * how, and what ALL adds, which boxes that are checked (rfs_chunks_set_checked) always do. Returns
 * 0, or an error of rfs_dcp_open_object with *err filled. Any thread may call it.
 */
int rfs_dcp_prove_object(struct rfs_chunks *boxes, const struct rfs_chunked_object *object,
                         bool all, struct rfs_error *err);

/*
 * The part of it that reads: READ and SIZE, as of rfs_ckpt_walk, of the .metadata. Declares, stores
 * and finishes.
 */
int rfs_dcp_describe(rfs_read_fn *read, void *ctx, uint64_t size, struct rfs_chunks *boxes,
                     struct rfs_error *err);
