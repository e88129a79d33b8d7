/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the files of torch.distributed.checkpoint: items, each a file of torch.save with one
 * chunk of a tensor, one after the other; and .metadata, a pickle that says what they are (dcp.c
 * draws both).
 */
#pragma once

#include "image/image.h"

/* A chunk: a part of a target's bytes, and the box that it is of the whole tensor. */
struct rfs_image_dcp_chunk {
    uint32_t target; /* number in the parameter list */
    uint32_t whole;  /* type of the whole tensor as shown; types are ids in the catalogue's */
    uint32_t type;   /* type of the chunk */
    uint64_t at;     /* offset in the target's bytes */
    uint64_t corner[RFS_MAX_DIMS];
    uint32_t shape; /* own type of a tensor that is stored flattened; else RFS_NO_ID */
};

/*
 * Makes the file of N chunks; item k begins at ends[k] and ends at ends[k + 1], which has room
 * for N + 1. CRC: see struct rfs_pt_config. 0 or -errno with *err filled.
 */
int rfs_image_dcp(struct rfs_catalog *catalog, const struct rfs_params *params,
                  const struct rfs_image_dcp_chunk *chunks, size_t n, bool crc,
                  struct rfs_image **out, uint64_t *ends, struct rfs_error *err);

/* A chunk, as .metadata describes it. */
struct rfs_image_dcp_item {
    uint32_t name;        /* shown name; id in the catalogue's names */
    uint32_t whole, type; /* types of the whole tensor and of the chunk */
    uint32_t file;        /* number of the file: __FILE_0.distcp */
    uint64_t begin, bytes;
    uint64_t corner; /* number of its first element, row by row */
    uint32_t shape;  /* type of the tensor that was flattened; RFS_NO_ID: it was not */
};

/* A value that is not a tensor, and its item. */
struct rfs_image_dcp_object {
    uint32_t name; /* shown name; id in the catalogue's names */
    uint64_t begin, bytes;
};

/* The contents of .metadata. */
struct rfs_image_dcp_listing {
    const struct rfs_image_dcp_item *items; /* grouped by name */
    size_t n;
    const struct rfs_image_dcp_object *objects; /* have other names than items */
    size_t n_objects;
    const char *objects_file; /* name of the file that has all objects */
    bool mcore_data;          /* a dict of Megatron-Core for each tensor is written */
};
/* Makes .metadata. 0 or -ENOMEM. */
int rfs_image_dcp_metadata(struct rfs_catalog *catalog, const struct rfs_image_dcp_listing *listing,
                           struct rfs_image **out);
