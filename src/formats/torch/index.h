/* SPDX-License-Identifier: Apache-2.0 */
/* A file of torch.save that holds a state dict, as a checkpoint: the index of its tensors. */
#pragma once

#include "formats/torch/archive.h"

/*
 * As rfs_ckpt_walk. ENTRY, "model" or "state.model", is the path of the state dict in the file's
 * object; NULL: the object itself. Values that are not tensors are left out; *left_out is their
 * number. Errors also as of rfs_torch_open; -EINVAL for an object that is no dict with a tensor in
 * it.
 */
int rfs_torch_walk(rfs_read_fn *read, void *ctx, uint64_t size, const char *file, const char *entry,
                   struct rfs_tables *tables, struct rfs_index **out, size_t *left_out,
                   struct rfs_error *err);

/*
 * The dict at ENTRY of a file's object. 0 with *out set, or -EINVAL with *err filled: there is
 * none.
 */
int rfs_torch_find_dict(const struct rfs_torch *torch, const char *file, const char *entry,
                        const struct rfs_node **out, struct rfs_error *err);
