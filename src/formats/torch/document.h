/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of torch.save that is to be shown: the object, as nodes taken from source files and nodes
 * made here, and where the bytes of its storages come from.
 *
 * Storages of source files are used whole, as they are. A storage that is made here is a row of
 * ranges of source files' storages: a large tensor joined from its pieces, or cut anew.
 *
 * Cost: the nodes that were made, some 400 bytes for each tensor, 24 bytes for each made storage
 * and 32 for each of its ranges. It is written once: that numbers the nodes that were made. It
 * borrows the nodes of its sources, which outlive it.
 */
#pragma once

#include "base/vec.h"
#include "formats/image.h"
#include "formats/torch/torch.h"

/* The origin of nodes that are made; source files have the numbers below it. */
#define RFS_ORIGIN_MADE UINT16_MAX

/* A range of a storage of a source file. */
struct rfs_range {
    const struct rfs_zip_entry *record;
    uint64_t offset; /* in the record's content */
    uint64_t bytes;
    uint16_t origin; /* number of the source file */
};

/* Adds a range of FILE to the item of storages that was begun last. False when out of memory. */
static inline bool rfs_range_store(const struct rfs_range *range, uint32_t file,
                                   struct rfs_storages *storages)
{
    const struct rfs_zip_entry *record = range->record;

    return rfs_storages_add(storages, file, record->offset + range->offset, range->bytes,
                            range->bytes == record->bytes ? record->crc : 0);
}

struct rfs_made_storage {
    size_t first; /* its first range */
    size_t n;     /* number of its ranges */
    uint64_t bytes;
};

#define RFS_DOCUMENT_INTS 61 /* numbers that are shared */

struct rfs_document {
    struct rfs_arena arena; /* has the nodes made; not counted in any pickle */
    const struct rfs_node *root;
    RFS_VEC(struct rfs_node *) names; /* globals, each once */
    struct rfs_node *storage_text;    /* "storage" */
    struct rfs_node *empty, *untrue;  /* () and False */
    struct rfs_node *ints[RFS_DOCUMENT_INTS];
    RFS_VEC(struct rfs_range) ranges;
    RFS_VEC(struct rfs_made_storage) made;
    bool failed; /* for want of memory */
};

void rfs_document_free(struct rfs_document *document);

/*
 * Make nodes, which the document owns, and copy texts. They return NULL when out of memory; from
 * then on nothing more is made, and FAILED stays set. A NULL may be added, so that a caller builds
 * a whole document and checks FAILED once.
 */
struct rfs_node *rfs_document_text(struct rfs_document *document, const char *text);
struct rfs_node *rfs_document_int(struct rfs_document *document, int64_t value);
struct rfs_node *rfs_document_container(struct rfs_document *document, enum rfs_node_kind kind);
/* Adds to a TUPLE, LIST or DICT (key and value in turn) of the document. */
void rfs_document_add(struct rfs_document *document, struct rfs_node *container,
                      const struct rfs_node *item);
/* Makes a collections.OrderedDict() and sets PAIRS (a DICT of the document, or NULL) on it. */
struct rfs_node *rfs_document_ordered(struct rfs_document *document, struct rfs_node *pairs);
/* Makes torch.Size(dims). */
struct rfs_node *rfs_document_size(struct rfs_document *document, uint32_t ndim,
                                   const uint64_t *dims);

/*
 * Adds a made storage of BYTES that come from elsewhere: a tensor that an encoder is given; or of 0
 * bytes, to which the ranges that follow are added.
 */
void rfs_document_reserve(struct rfs_document *document, uint64_t bytes);
/* Adds a range to the storage that was begun last. */
void rfs_document_range(struct rfs_document *document, const struct rfs_range *range);
/*
 * Makes a row-major tensor of DTYPE over the storage that was begun last, whose node has the number
 * of that storage.
 */
struct rfs_node *rfs_document_tensor(struct rfs_document *document, enum rfs_dtype dtype,
                                     uint32_t ndim, const uint64_t *dims);

/*
 * Makes the root a dict of tensors by their names, which it borrows; made storage K is that of
 * tensor K. PATH is for
 * messages. 0, -ENOMEM, or -EINVAL with *err filled for types that torch lacks.
 */
int rfs_document_dict(struct rfs_document *document, const struct rfs_image_tensor *tensors,
                      size_t n, const char *path, struct rfs_error *err);
