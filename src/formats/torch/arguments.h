/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of a training by Megatron, which its saves have as "args": an argparse.Namespace in
 * mp_rank_00/model_optim_rng.pt and common.pt. Source: megatron/training/checkpointing.py and
 * arguments.py of Megatron-LM.
 */
#pragma once

#include "base/error.h"
#include "base/io.h"
#include "base/vec.h"

/*
 * Appends what the arguments in a file of torch.save say of the heads of the model, which no shape
 * shows, as an object with the keys of HuggingFace's config.json; nothing if there are none. 0, or
 * an error of rfs_torch_open_named with *err filled. Cost: that of the pickle.
 */
int rfs_torch_arguments(const struct rfs_bytes_source *from, struct rfs_bytes *out,
                        struct rfs_error *err);
