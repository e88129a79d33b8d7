/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph of nodes (formats/torch/pickle.h) written as a pickle of protocol 2, as CPython's pickler
 * writes the same objects: shared objects are written once, and objects that contain themselves can
 * be written.
 *
 * Opcodes are among those that torch.load(weights_only=True) accepts, if the graph's callables are.
 */
#pragma once

#include "formats/torch/pickle.h"
#include "image/build.h"

/*
 * Called for each STORAGE node: gives its key in the written file, a number that is the same for
 * the same storage. 0 or -errno with the error filled by it.
 */
typedef int rfs_storage_key_fn(void *ctx, const struct rfs_node *storage, uint32_t *key);

/*
 * Appends to OUT, which the caller frees in any case. 0, -ENOMEM, -EINVAL for a graph that is
 * nested deeper than RFS_PICKLE_DEPTH, or KEY's error; *err filled. Locations are written as "cpu".
 */
int rfs_pickle_write(const struct rfs_node *root, rfs_storage_key_fn *key, void *ctx,
                     struct rfs_bytes *out, struct rfs_error *err);
