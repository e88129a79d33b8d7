/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoint 2.0 of MindSpore Transformers: one folder of safetensors files for all ranks, and
 * metadata.json, which lists the slices and their files.
 */
#pragma once

#include "formats/chunks/chunks.h"

#define RFS_MF_AXES 64 /* of a device matrix, and entries of a tensor map */

/*
 * Reads metadata.json, file 0 of FILES, in FOLDER, which is absolute and resolved. Takes linear
 * time, and the memory of a block of the text and of the boxes. 0 with *out owned by the caller, or
 * -errno with *err filled. LOG hears which files are missing where others have the same slices.
 */
int rfs_mindformers_open(const char *folder, struct rfs_files *files, struct rfs_tables *tables,
                         struct rfs_log *log, struct rfs_chunks **out, struct rfs_error *err);
/* Whether the boxes are of that function. */
bool rfs_chunks_are_mindformers(const struct rfs_chunks *boxes);

/* How the ranks of a stage hold a tensor. Equal ones have equal bytes. */
struct rfs_mf_layout {
    uint32_t n_dev, n_axes; /* n_dev 0: metadata.json has no layout, and every rank has all of it */
    uint64_t dev[RFS_MF_AXES];
    uint64_t end[RFS_MF_AXES]; /* axis i of the tensor has the entries end[i - 1] … end[i] - 1 */
    int64_t map[RFS_MF_AXES];
};

/* A tensor in a stage of the training that saved it. */
struct rfs_mf_held {
    uint32_t tensor; /* its number in the boxes */
    uint32_t stage;
    uint64_t ranks; /* of the stage that hold it: all of them */
};

/* The slices of ranks, as a strategy. */
struct rfs_mf_layouts {
    uint64_t devices; /* of each stage; those of stage s are the ranks from s * devices on */
    struct rfs_intern *distinct;      /* struct rfs_mf_layout */
    RFS_VEC(uint32_t) of;             /* by number of a tensor: id of its layout */
    RFS_VEC(struct rfs_mf_held) held; /* by stage, then by tensor */
};

/*
 * Reads metadata.json again, for the layouts that the boxes do not keep. Proves that each rank of a
 * stage holds the slice that the layout gives it. 0 with *out to be freed, or -errno with *err
 * filled: no strategy says what these ranks hold.
 */
int rfs_mindformers_layouts(struct rfs_chunks *boxes, struct rfs_mf_layouts *out,
                            struct rfs_error *err);
void rfs_mf_layouts_free(struct rfs_mf_layouts *layouts);
static inline const struct rfs_mf_layout *rfs_mf_layout_of(const struct rfs_mf_layouts *layouts,
                                                           uint32_t tensor)
{
    return (const struct rfs_mf_layout *)rfs_intern_bytes(layouts->distinct,
                                                          layouts->of.data[tensor], NULL);
}
