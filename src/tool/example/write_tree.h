/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An example on disk:
 *
 *     DIR/src/rank_N/checkpoint_N.ckpt    for each source rank, mode 0400 in folders of mode 0700
 *     DIR/src_strategy.ckpt
 *     DIR/dst_strategy.ckpt
 */
#pragma once

#include "tool/example/network.h"

/*
 * Writes it, several ranks at a time. DIR is made if it is not there, and must be empty unless
 * FORCE: then an example in it (and nothing else) is removed first. A tree that was begun is
 * removed on failure. *bytes is the size of all source files. 0 or -errno with *err filled.
 */
int rfs_tree_write(const char *dir, const struct rfs_net *net, uint64_t seed, bool force,
                   uint64_t *bytes, struct rfs_error *err);
