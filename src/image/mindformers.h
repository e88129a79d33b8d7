/* SPDX-License-Identifier: Apache-2.0 */
/* metadata.json of MindSpore Transformers' Checkpoint 2.0; mindformers.c draws it. */
#pragma once

#include "image/image.h"

/* A tensor, and the files of the ranks that store its slices. */
struct rfs_mf_tensor {
    uint32_t name;               /* shown; id in the catalogue's names */
    uint32_t type;               /* of the whole tensor, id in the types; its shape is whole */
    const uint64_t *whole;       /* [ndim] */
    const struct rfs_grid *grid; /* how the ranks of a stage cut it; NULL: it is not cut */
    uint32_t base, ranks;        /* the first rank of the stage, and how many it has */
    const char *const *files;    /* [ranks] of the stage's ranks; NULL: it stores nothing */
};

/* 0 or -ENOMEM. */
int rfs_image_mf_metadata(struct rfs_catalog *catalog, const struct rfs_mf_tensor *tensors,
                          size_t n, struct rfs_image **out);
