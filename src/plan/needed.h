/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds which source ranks a destination rank needs, by the strategies alone: no checkpoint and
 * no shape is looked at, so tensors are taken to divide as the strategies cut them.
 *
 * For each source stage that gives the rank something, these are the ranks that hold the cells that
 * its slices touch (of replicas the one that MindSpore takes), and the rank with its own number in
 * the stage, which gives parameters that are copied unsliced (step counts and the like).
 *
 * Cost: time in the distinct pairs of layouts and the cells that they touch; no parameter is looked
 * at twice.
 */
#pragma once

#include "layout/strategy.h"

struct rfs_needed;

/*
 * Prepares *out, the caller's, which the strategies outlive; NULL: unsharded. 0 or -errno with *err
 * filled.
 */
int rfs_needed_open(const struct rfs_strategy *src, const struct rfs_strategy *dst,
                    struct rfs_needed **out, struct rfs_error *err);
void rfs_needed_free(struct rfs_needed *needed);

/* Returns the number of ranks of the destination. */
uint32_t rfs_needed_ranks(const struct rfs_needed *needed);
/* Returns the number of ranks of the source. */
uint32_t rfs_needed_sources(const struct rfs_needed *needed);

/*
 * Sets wanted[R] for each source rank R that destination rank RANK needs; clears the others. 0 or
 * -errno.
 */
int rfs_needed_by(struct rfs_needed *needed, uint32_t rank, unsigned char *wanted,
                  struct rfs_error *err);
