/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that PyTorch's FSDP saves rank by rank, with torch.save: model_world_size_8_rank_0.pt and
 * so on, state dicts of DTensors. fsdp.c draws these.
 *
 * Cost of opening: the pickles of all files, one after the other.
 */
#pragma once

#include "formats/chunks/chunks.h"

/*
 * Opens the files of FOLDER that are in FILES. ENTRY is as for rfs_torch_walk. LOST (or NULL) names
 * files of the save that are not there, so that tensors may be incomplete. 0 with *out owned by the
 * caller, or -errno with *err filled: -ENOTSUP for placements other than Shard and
 * Replicate.
 */
int rfs_fsdp_open(const char *folder, const char *entry, const char *lost, struct rfs_files *files,
                  struct rfs_tables *tables, struct rfs_log *log, struct rfs_chunks **out,
                  struct rfs_error *err);
