/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which source ranks a destination rank needs, by the strategies alone: no checkpoint and no shape
 * is looked at, so tensors are taken to divide as the strategies cut them.
 *
 * For each source stage that gives the rank something these are the ranks that hold the cells that
 * its slices touch, of replicas those that MindSpore takes, and the rank at its own place, which
 * gives parameters that are copied unsliced (step counts and the like).
 *
 * Cost: time in the distinct pairs of layouts and the cells that they touch; no parameter is looked
 * at twice.
 */
#pragma once

#include "layout/strategy.h"

struct rfs_needed;

/* NULL: unsharded. They outlive *out, the caller's. 0 or -errno with *err filled. */
int rfs_needed_open(const struct rfs_strategy *src, const struct rfs_strategy *dst,
                    struct rfs_needed **out, struct rfs_error *err);
void rfs_needed_free(struct rfs_needed *needed);

uint32_t rfs_needed_ranks(const struct rfs_needed *needed);   /* of the destination */
uint32_t rfs_needed_sources(const struct rfs_needed *needed); /* of the source */

/*
 * Sets wanted[R] for each source rank R that destination rank RANK needs; clears the others. 0 or
 * -errno.
 */
int rfs_needed_by(struct rfs_needed *needed, uint32_t rank, unsigned char *wanted,
                  struct rfs_error *err);
