/* SPDX-License-Identifier: Apache-2.0 */
/* Group info files: which ranks hold the same. */
#pragma once

#include "base/error.h"

/* The ranks whose checkpoints are the same, ascending, each once; owned. */
struct rfs_group {
    uint32_t *ranks;
    size_t n;
};

/*
 * The result of restore_group_info_list for the file. *out is to be freed by free(out->ranks) in
 * any case.
 */
int rfs_group_read(const char *path, struct rfs_group *out, struct rfs_error *err);
/* The same of the content of a file; messages name PATH. */
int rfs_group_parse(const char *path, const void *data, size_t size, struct rfs_group *out,
                    struct rfs_error *err);
