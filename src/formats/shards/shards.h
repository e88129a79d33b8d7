/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of torch.distributed.checkpoint's HuggingFaceStorageWriter with save_distributed=True:
 * safetensors files, each with the chunks that a rank has of the tensors. shards.c draws them.
 *
 * Cost of opening: the headers of all files, one after the other.
 */
#pragma once

#include "formats/chunks/chunks.h"
#include "formats/numbered.h"

/*
 * shard-00001-model-00001-of-00003.safetensors: 1 + the rank, the part of the model, of how many.
 */
extern const struct rfs_numbered_form rfs_shards_names;

/* Opens the files of a folder. */
rfs_chunks_open_fn rfs_shards_open;
