/* SPDX-License-Identifier: Apache-2.0 */
/* Files of torch.save. */
#pragma once

#include "formats/image.h"
#include "formats/torch/document.h"

/* A file that a document takes nodes from. */
struct rfs_torch_origin {
    const struct rfs_torch *torch;
    const char *path;
    uint32_t file; /* number in struct rfs_files */
};

/* The contents of a file. All is borrowed for the call. */
struct rfs_torch_content {
    const struct rfs_document *document;
    /*
     * [origins of the document] the files with its storages, which become storages of the image.
     * NULL: the targets of the image are made storages.
     */
    const struct rfs_torch_origin *origins;
    const char *stem; /* the file's name without its ending, at most 255 bytes */
    const char *path; /* path of the source, for messages */
    bool crc; /* checksums that take reading are computed when they are read, else they are 0 */
};

/*
 * Makes a file of torch.save. 0, -ENOMEM, -EINVAL with *err filled for a document whose storages
 * are not in its files, or -EFBIG. The image has the pickle and some 200 bytes of headers for each
 * storage, besides its regions (two, or four with CRC) and its storages. O(nodes).
 */
int rfs_torch_encode(const struct rfs_torch_content *content, struct rfs_image **out,
                     struct rfs_error *err);

/* A file of torch.save with one tensor. */
struct rfs_torch_item {
    uint32_t target;             /* number of the target that has the tensor's bytes */
    uint64_t at;                 /* offset of the tensor's bytes in the target */
    const struct rfs_type *type; /* dims, dtype and bytes of the tensor */
    bool crc;                    /* see struct rfs_torch_content */
};
/*
 * Adds a file with one tensor to an image, as an item: its offsets count from its own beginning. 0
 * or -errno.
 */
int rfs_torch_encode_item(struct rfs_image_builder *builder, const struct rfs_torch_item *item,
                          struct rfs_error *err);
