/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoint 2.0 of MindSpore Transformers: one folder of safetensors files for all ranks, and
 * metadata.json, which lists the slices and their files.
 */
#pragma once

#include "formats/chunks/chunks.h"
#include "formats/numbered.h"
#include "formats/seen.h"

#define RFS_MINDFORMERS_AXES 64 /* most axes of a device matrix, and entries of a tensor map */

/*
 * [PREFIX-]model-0000000-0000008.safetensors, and [PREFIX-]opt-…: the rank, the number of ranks.
 * The first form is that of the model.
 */
extern const struct rfs_numbered_form rfs_mindformers_names;

/*
 * Reads metadata.json, file 0. Takes linear time, and the memory of a block of the text and of the
 * chunks. The log hears which files are missing where others have the same slices.
 */
rfs_chunks_open_fn rfs_mindformers_open;
/* The names in such a folder, and what they mean (seen.h). */
extern const struct rfs_seen_kind rfs_mindformers_seen;
/* Says whether a checkpoint is of this format. */
bool rfs_mindformers_owns(const struct rfs_chunks *chunks);

/* The layout of a tensor among the ranks of a stage. Equal layouts have equal bytes. */
struct rfs_mindformers_layout {
    uint32_t n_dev, n_axes; /* n_dev 0: there is no layout, and every rank has the whole tensor */
    uint64_t dev[RFS_MINDFORMERS_AXES];
    uint64_t end
        [RFS_MINDFORMERS_AXES]; /* axis i of the tensor has the entries end[i - 1] … end[i] - 1 */
    int64_t map[RFS_MINDFORMERS_AXES];
};

/* A tensor in a stage of the training that saved it. */
struct rfs_mindformers_held {
    uint32_t tensor; /* position in rfs_chunks.tensors */
    uint32_t stage;
    uint64_t ranks; /* number of ranks of the stage that hold it: all of them */
};

/* The slices of ranks, as a strategy. */
struct rfs_mindformers_strategy {
    uint64_t devices; /* number of ranks of each stage; stage s has those from s * devices on */
    struct rfs_intern *distinct;               /* struct rfs_mindformers_layout */
    RFS_VEC(uint32_t) of;                      /* by tensor: id of its layout in distinct */
    RFS_VEC(struct rfs_mindformers_held) held; /* by stage, then by tensor */
};

/*
 * Reads metadata.json again, for the layouts that CHUNKS lack. Proves that each rank of a stage
 * holds the slice that the layout gives it. 0 with *out to be freed, or -errno with *err filled: no
 * strategy says what these ranks hold.
 */
int rfs_mindformers_read_strategy(struct rfs_chunks *chunks, struct rfs_mindformers_strategy *out,
                                  struct rfs_error *err);
void rfs_mindformers_strategy_free(struct rfs_mindformers_strategy *strategy);
/* Returns the layout of a tensor. */
static inline const struct rfs_mindformers_layout *
rfs_mindformers_layout_of(const struct rfs_mindformers_strategy *strategy, uint32_t tensor)
{
    return (const struct rfs_mindformers_layout *)rfs_intern_bytes(strategy->distinct,
                                                                   strategy->of.data[tensor], NULL);
}
