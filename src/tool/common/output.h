/* SPDX-License-Identifier: Apache-2.0 */
/* A small file that a command writes for its user. */
#ifndef RFS_TOOL_COMMON_OUTPUT_H
#define RFS_TOOL_COMMON_OUTPUT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Writes PATH in one go: under a temporary name beside it, which is renamed when all is on the disk. What is there is
 * replaced only if FORCE. "-" is the standard output. 0, or -errno with *err filled, and nothing is left behind.
 */
int rfs_output_write(const char *path, const void *data, size_t size, bool force,
                     struct rfs_error *err);

#endif
