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
struct rfs_output {
    const char *path; /* borrowed; "-": the standard output */
    char *temporary;  /* owned; the temporary name; NULL: there is none, or no more */
    int fd;           /* -1: none */
    bool force;
};
#define RFS_OUTPUT_NONE ((struct rfs_output){.fd = -1})

/* Begin, write and end the file. Each returns 0, or -errno with *err filled. */
int rfs_output_begin(const char *path, bool force, struct rfs_output *out, struct rfs_error *err);
int rfs_output_add(struct rfs_output *out, const void *data, size_t size, struct rfs_error *err);
int rfs_output_end(struct rfs_output *out, struct rfs_error *err);
/* Removes an output that has not ended; does nothing with any other, or RFS_OUTPUT_NONE. */
void rfs_output_drop(struct rfs_output *out);
