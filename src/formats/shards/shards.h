/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of torch.distributed.checkpoint's HuggingFaceStorageWriter with save_distributed=True:
 * safetensors files, each with the chunks that a rank has of the tensors. shards.c draws them.
 *
 * Cost of opening: the headers of all files, one after the other.
 */
#pragma once

#include "formats/chunks/chunks.h"

/*
 * Opens the files of FOLDER that are in FILES. 0 with *out owned by the caller, or -errno with *err
 * filled.
 */
int rfs_shards_open(const char *folder, struct rfs_files *files, struct rfs_tables *tables,
                    struct rfs_log *log, struct rfs_chunks **out, struct rfs_error *err);
