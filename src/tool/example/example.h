/* SPDX-License-Identifier: Apache-2.0 */
/* Turns networks into files: source ranks and strategies. */
#pragma once

#include "base/progress.h"
#include "tool/example/network.h"

/*
 * Makes the strategy of SIDE (0 source, 1 destination): the bytes of a protobuf strategy file,
 * malloc'ed. 0 or -errno with *err filled. Exported for tests, as the next.
 */
int rfs_example_write_strategy(const struct rfs_net *net, unsigned side, char **data, size_t *size,
                               struct rfs_error *err);

/*
 * Writes the .ckpt file of one source rank to FD, with memory of about a MiB whatever its size.
 * PATH is for messages. Bytes are added to PROGRESS, unless it is NULL. 0 or -errno with *err
 * filled.
 */
int rfs_example_write_rank(const struct rfs_net *net, uint64_t seed, uint32_t rank, int fd,
                           const char *path, struct rfs_progress *progress, struct rfs_error *err);
