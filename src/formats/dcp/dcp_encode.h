/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes .metadata of torch.distributed.checkpoint, a pickle that says what its files are
 * (dcp_encode.c draws both). A file has items, each a file of torch.save with one chunk of a tensor
 * (rfs_torch_encode_item), one after the other. HyperParallel's .metadata is similar; its files are
 * safetensors with the chunks under keys.
 */
#pragma once

#include "formats/dcp/dcp_pickle.h"
#include "formats/image.h"
#include "formats/walker.h"

/*
 * Makes a file of items: a chunk of a target each, which begins AT bytes into the target. Items of
 * one type have their literals in the image once. CRC: checksums are computed when they are read. 0
 * or -errno with *err filled: PATH is the source's.
 */
int rfs_dcp_encode_items(const struct rfs_image_tensor *items, size_t n, bool crc, const char *path,
                         struct rfs_image **out, struct rfs_error *err);
/* Gives the bytes of an item of a type. 0 or -errno with *err filled. */
int rfs_dcp_item_bytes(const struct rfs_type *type, uint64_t *out, struct rfs_error *err);

/* A chunk, as .metadata describes it. */
struct rfs_dcp_listed_item {
    uint32_t type; /* the chunk's type */
    uint32_t file; /* number of the file: __FILE_0.distcp or _rankFILE_.safetensors */
    union {
        struct {
            uint64_t begin, bytes; /* of the item in torch's file */
        };
        uint32_t key; /* name in HyperParallel's file; id in the tables' names */
    } at;
    uint64_t corner; /* number of its first element, row by row */
};

/* A tensor, and its chunks. */
struct rfs_dcp_listed_tensor {
    uint32_t name;  /* shown name; id in the tables' names */
    uint32_t whole; /* type of the whole tensor */
    uint32_t shape; /* type of the tensor that was flattened; RFS_NO_ID: it was not */
    const struct rfs_dcp_listed_item *items; /* by corner */
    size_t n;
};
/*
 * Lists tensor I, whose items are valid until the next call. 0 or -errno with *err filled. The
 * calls are for 0, 1 and so on to the last, and once more.
 */
typedef int rfs_dcp_list_fn(void *ctx, size_t i, struct rfs_dcp_listed_tensor *out,
                            struct rfs_error *err);

/* A value that is not a tensor, and its item. */
struct rfs_dcp_listed_object {
    uint32_t name; /* shown name; id in the tables' names */
    uint64_t begin, bytes;
};

/* The contents of .metadata. */
struct rfs_dcp_listing {
    rfs_dcp_list_fn *list;
    void *ctx;
    size_t n;                                    /* tensors */
    const struct rfs_dcp_listed_object *objects; /* have other names than items */
    size_t n_objects;
    const char *objects_file; /* name of the file that has all objects */
    bool mcore_data;          /* a dict of Megatron-Core for each tensor is written */
    enum rfs_dcp_program program;
};
/*
 * Makes .metadata of a program. Takes the memory of its bytes, and 8 bytes for each tensor. 0 or
 * -errno with *err filled.
 */
int rfs_dcp_encode_metadata(const struct rfs_tables *tables, const struct rfs_dcp_listing *listing,
                            struct rfs_image **out, struct rfs_error *err);
