/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that DeepSpeed saves with ZeRO, stages 1 to 3: a folder with files of the model's
 * states and of the optimizer's. A universal checkpoint of stage 1 or 2 has files of each parameter
 * instead of the latter. zero.c draws them.
 *
 * Shown are the parameters as DeepSpeed's zero_to_fp32 gives them (the optimizer's own weights),
 * buffers and frozen parameters in the dtype that they are stored in, and the optimizer's states as
 * optim.state.NAME.exp_avg and so on.
 *
 * Cost of opening: the pickles of the files, one after the other, and one number of each optimizer.
 * Memory: that of the chunks (formats/chunks/chunks.h), one for each rank that has a piece of a
 * tensor, and 24 bytes for each flat tensor of a rank.
 */
#pragma once

#include "formats/chunks/chunks.h"
#include "formats/seen.h"

enum rfs_zero_role {
    RFS_ZERO_MODEL, /* mp_rank_00_model_states.pt, or zero_pp_rank_0_mp_rank_00_model_states.pt */
    RFS_ZERO_OPTIMIZER, /* [bf16_]zero_pp_rank_0_mp_rank_00_optim_states.pt */
    RFS_ZERO_LAYER,     /* layer_00-model_states.pt, of a pipeline */
    RFS_ZERO_EXPERT,    /* layer_0_expert_0_mp_rank_00_model_states.pt and so on */
    RFS_ZERO_ROLES
};

/* A name of a file, as DeepSpeed gives it. */
struct rfs_zero_name {
    enum rfs_zero_role role;
    bool ranked;       /* its rank is in the name: not so for models of stages 0 to 2 */
    bool bf16;         /* prefix of an optimizer's file */
    uint32_t rank, mp; /* data-parallel and model-parallel rank; 0 if not in the name */
};

/* Reads the name of a file. False: DeepSpeed gives no such name. */
bool rfs_zero_read_name(const char *name, struct rfs_zero_name *out);

/*
 * Opens the files of a folder: those of models, by rank, then those of optimizers, by rank, or
 * those of parameters, zero/NAME/KEY.pt.
 * -ENOTSUP for kinds of saves that are not read.
 */
rfs_chunks_open_fn rfs_zero_open;
/* The names in the folder of a save, and what they mean (seen.h). */
extern const struct rfs_seen_kind rfs_zero_seen;
