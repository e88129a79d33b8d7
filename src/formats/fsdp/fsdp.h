/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that PyTorch's FSDP saves rank by rank, with torch.save: model_world_size_8_rank_0.pt and
 * so on, state dicts of DTensors or, of FSDP1, of ShardedTensors. fsdp.c draws these.
 *
 * Cost of opening: the pickles of all files, one after the other; and while they are read 4 bytes a
 * name, and 48 for each distinct list of a ShardedTensor's shards.
 */
#pragma once

#include "formats/chunks/chunks.h"
#include "formats/numbered.h"

/* model_world_size_8_rank_0.pt: the number of ranks, the rank. */
extern const struct rfs_numbered_form rfs_fsdp_names;

/*
 * Opens the files of a folder; -ENOTSUP for placements other than Shard and Replicate, and for flat
 * parameters.
 */
rfs_chunks_open_fn rfs_fsdp_open;
