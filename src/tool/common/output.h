/* SPDX-License-Identifier: Apache-2.0 */
/* A file that a command writes for its user: there whole, or not at all. */
#pragma once

#include "base/error.h"

/*
 * Writes PATH in one go: under a temporary name beside it, which is renamed when all is on the
 * disk. Another file is replaced only if FORCE. "-" is the standard output. Returns 0, or -errno
 * with *err filled, and nothing is left behind.
 */
int rfs_output_write(const char *path, const void *data, size_t size, bool force,
                     struct rfs_error *err);

/* A file that is written in pieces, by one thread at a time. */
struct rfs_output;
/* Adds a piece. 0, or -errno with *err filled. */
int rfs_output_add(struct rfs_output *out, const void *data, size_t size, struct rfs_error *err);
/* Adds all pieces. 0, or -errno with *err filled, which is passed on. */
typedef int rfs_output_fill_fn(void *ctx, struct rfs_output *out, struct rfs_error *err);
/* Writes PATH in pieces, as rfs_output_write does in one go. */
int rfs_output_make(const char *path, bool force, rfs_output_fill_fn *fill, void *ctx,
                    struct rfs_error *err);
