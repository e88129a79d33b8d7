/* SPDX-License-Identifier: Apache-2.0 */
/* Makes metadata.json of MindSpore Transformers' Checkpoint 2.0; mindformers_encode.c draws it. */
#pragma once

#include "formats/image.h"
#include "formats/walker.h"
#include "layout/grid.h"

/* A tensor, and the files of the ranks that store its slices. */
struct rfs_mindformers_tensor {
    uint32_t name;               /* shown name; id in the tables' names */
    uint32_t type;               /* type of the whole tensor, id in the types; its shape is whole */
    const uint64_t *whole;       /* [ndim] */
    const struct rfs_grid *grid; /* cuts of the ranks of a stage; NULL: it is not cut */
    uint32_t base, ranks;        /* first rank of the stage, and number of its ranks */
    const char *const *files;    /* [ranks] file of each rank; NULL: the rank stores nothing */
};

/*
 * Makes the file, whose text is written when it is read: of many ranks it is large. What TENSORS
 * point to, and the tables, last as long as the image; the list is copied. 0, -ENOMEM or -EFBIG.
 *
 * Time in the tensors, and in the slices of those that are cut in different ways. Memory: the list.
 */
int rfs_mindformers_encode_metadata(const struct rfs_tables *tables,
                                    const struct rfs_mindformers_tensor *tensors, size_t n,
                                    struct rfs_image **out);
