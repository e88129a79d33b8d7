/* SPDX-License-Identifier: Apache-2.0 */
/* Group info files: which ranks hold equal slices. */
#pragma once

#include "base/error.h"

struct rfs_store;

/* Ranks whose checkpoints are equal, ascending, each once; owned. */
struct rfs_group {
    uint32_t *ranks;
    size_t n;
};

/*
 * Reads a file as restore_group_info_list does. *out is to be freed by free(out->ranks) in any
 * case. 0, or -errno with *err filled.
 */
int rfs_scan_group_read(struct rfs_store *store, const char *path, struct rfs_group *out,
                        struct rfs_error *err);
/* Parses the content of such a file; messages name PATH. */
int rfs_scan_group_parse(const char *path, const void *data, size_t size, struct rfs_group *out,
                         struct rfs_error *err);
