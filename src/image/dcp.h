/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of torch.distributed.checkpoint: items, each a file of torch.save with one chunk of a
 * tensor, one after the other; and .metadata, a pickle that says what they are (dcp.c and
 * dcp_metadata.c draw them).
 */
#pragma once

#include "image/image.h"

/* A chunk: a part of a target's bytes, and the box that it is of the whole tensor. */
struct rfs_dcp_chunk {
    uint32_t target; /* in the parameter list */
    uint32_t whole;  /* type of the whole tensor as shown; id in the catalogue's types, as TYPE */
    uint32_t type;   /* of the chunk */
    uint64_t at;     /* in the target's bytes */
    uint64_t corner[RFS_MAX_DIMS];
    uint32_t shape; /* of a tensor that is stored flattened: its own type; else RFS_NO_ID */
};

/*
 * The file of N chunks; item k begins at ends[k] and ends at ends[k + 1], which has room for N + 1.
 * CRC: as of format=pt. 0 or -errno with *err filled.
 */
int rfs_image_dcp(struct rfs_catalog *catalog, const struct rfs_params *params,
                  const struct rfs_dcp_chunk *chunks, size_t n, bool crc, struct rfs_image **out,
                  uint64_t *ends, struct rfs_error *err);

/* A chunk, as .metadata describes it. */
struct rfs_dcp_item {
    uint32_t name;        /* shown; id in the catalogue's names */
    uint32_t whole, type; /* as in the chunk */
    uint32_t file;        /* __FILE_0.distcp */
    uint64_t begin, bytes;
    uint64_t corner; /* the number of its first element, row by row */
    uint32_t shape;  /* the type of the tensor that was flattened; RFS_NO_ID: it was not */
};

/* A value that is not a tensor, and its item. */
struct rfs_dcp_object {
    uint32_t name; /* as in an item */
    uint64_t begin, bytes;
};

/* The contents of .metadata. */
struct rfs_dcp_listing {
    const struct rfs_dcp_item *items; /* grouped by name */
    size_t n;
    const struct rfs_dcp_object *objects; /* of other names */
    size_t n_objects;
    const char *objects_file; /* the name of the file that has them all */
    bool mcore_data;          /* with a dict of Megatron-Core for each tensor */
};
/* 0 or -ENOMEM. */
int rfs_image_dcp_metadata(struct rfs_catalog *catalog, const struct rfs_dcp_listing *listing,
                           struct rfs_image **out);
