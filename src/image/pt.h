/* SPDX-License-Identifier: Apache-2.0 */
/* Files of torch.save. */
#pragma once

#include "hfai/storages.h"
#include "image/image.h"

/*
 * What a file is made of. All is borrowed; the parameter list outlives the image, the rest the
 * call.
 */
struct rfs_pt_config {
    struct rfs_catalog *catalog;
    const struct rfs_hfai_document *document;
    /* gives the opened file of an origin; NULL when the document takes no nodes from files */
    const struct rfs_torch *(*torch)(void *ctx, uint16_t origin);
    void *ctx;
    /* its targets are the made storages, in that order; NULL: the image gets storages of its own */
    const struct rfs_params *params;
    const char *stem; /* the file's name without its ending, at most 255 bytes */
    bool crc; /* checksums that take reading are computed when they are read, else they are 0 */
};

/*
 * Makes a file of torch.save. 0, -ENOMEM, -EINVAL with *err filled for a document whose storages
 * are not in its files, or -EFBIG. The image has the pickle and some 200 bytes of headers for each
 * storage, besides its regions (two, or four with CRC) and its storages. O(nodes).
 */
int rfs_image_pt(const struct rfs_pt_config *config, struct rfs_image **out, struct rfs_error *err);

struct rfs_image_builder;

/* A file of torch.save with one tensor. */
struct rfs_pt_tensor {
    const struct rfs_params *params;
    uint32_t target;             /* number of the target in the parameter list */
    uint64_t at;                 /* offset of the tensor's bytes in the target */
    const struct rfs_type *type; /* dims, dtype and bytes of the tensor */
    bool crc;                    /* see struct rfs_pt_config */
};
/*
 * Adds a file with one tensor to an image, as an item: its offsets count from its own beginning. 0
 * or -errno.
 */
int rfs_image_pt_tensor(struct rfs_image_builder *builder, const struct rfs_pt_tensor *tensor,
                        struct rfs_error *err);
