/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a graph of nodes (formats/torch/pickle.h) as a pickle of protocol 2, as CPython's pickler
 * does: shared objects are written once, and objects that contain themselves can be
 * written.
 *
 * Opcodes are among those that torch.load(weights_only=True) accepts, if the graph's callables are.
 */
#pragma once

#include "base/vec.h"
#include "formats/torch/pickle.h"

/*
 * Gives the key of a STORAGE node in the written file: a number for each storage. Called for each
 * such node. 0 or -errno with the error filled by it.
 */
typedef int rfs_pickler_key_fn(void *ctx, const struct rfs_node *storage, uint32_t *key);

/*
 * Appends the pickle to OUT, which the caller frees in any case. 0, -ENOMEM, -EINVAL for a graph
 * that is nested deeper than RFS_PICKLE_DEPTH, or KEY's error; *err filled. Locations are written
 * as "cpu".
 */
int rfs_pickler_write(const struct rfs_node *root, rfs_pickler_key_fn *key, void *ctx,
                      struct rfs_bytes *out, struct rfs_error *err);
