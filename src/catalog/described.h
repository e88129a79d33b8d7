/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a checkpoint that describes itself, of any format that has boxes. */
#pragma once

#include "catalog/scan/scan.h"
#include "formats/chunks/chunks.h"

/*
 * Reads the metadata of a checkpoint that a scan found (scan->described); FILES has the files of
 * rank 0 alone. ENTRY says where in files of torch.save the state dict is. 0 with
 * *out owned by the caller, or -errno with *err filled.
 */
int rfs_chunks_open(const struct rfs_scan *scan, const char *entry, struct rfs_files *files,
                    struct rfs_tables *tables, struct rfs_log *log, struct rfs_chunks **out,
                    struct rfs_error *err);
