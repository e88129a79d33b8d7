/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of torch.save that is to be shown: the object, as nodes taken from source files and nodes
 * made here, and where the bytes of its storages come from.
 *
 * Storages of source files are used whole, as they are. A storage that is made here is a row of
 * ranges of source files' storages: a large tensor joined from its pieces, or cut anew.
 *
 * Cost: the nodes that were made, 24 bytes for each made storage and 32 for each of its ranges.
 * Immutable once built. It borrows the nodes of its sources, which outlive it.
 */
#pragma once

#include "base/vec.h"
#include "catalog/catalog.h"
#include "formats/torch/archive.h"

struct rfs_params;

/* The origin of nodes that are made; source files have the numbers below it. */
#define RFS_ORIGIN_MADE UINT16_MAX

/* A range of a storage of a source file. */
struct rfs_range {
    const struct rfs_zip_entry *record;
    uint64_t offset; /* in the record's content */
    uint64_t bytes;
    uint16_t origin; /* which source file */
};

struct rfs_made_storage {
    size_t first; /* of its ranges */
    size_t n;
    uint64_t bytes;
};

struct rfs_document {
    struct rfs_arena arena; /* of the nodes made; not counted in any pickle */
    const struct rfs_node *root;
    RFS_VEC(struct rfs_node *) names; /* globals, each once */
    struct rfs_node *storage_text;    /* "storage" */
    RFS_VEC(struct rfs_range) ranges;
    RFS_VEC(struct rfs_made_storage) made;
};

void rfs_document_free(struct rfs_document *document);

/* Nodes of the document's own. NULL when out of memory. Texts are copied. */
struct rfs_node *rfs_document_text(struct rfs_document *document, const char *text);
struct rfs_node *rfs_document_int(struct rfs_document *document, int64_t value);
struct rfs_node *rfs_document_container(struct rfs_document *document, enum rfs_node_kind kind);
struct rfs_node *rfs_document_global(struct rfs_document *document, enum rfs_callable callable,
                                     const char *module, const char *name);
struct rfs_node *rfs_document_call(struct rfs_document *document, struct rfs_node *callee,
                                   struct rfs_node *args);
/*
 * Adds to a TUPLE, LIST or DICT (key and value in turn) of the document. False when out of memory.
 */
bool rfs_document_add(struct rfs_document *document, struct rfs_node *container,
                      const struct rfs_node *item);
/* collections.OrderedDict() with PAIRS (a DICT of the document) set on it. */
struct rfs_node *rfs_document_ordered(struct rfs_document *document, struct rfs_node *pairs);
/* torch.Size(dims). */
struct rfs_node *rfs_document_size(struct rfs_document *document, uint32_t ndim,
                                   const uint64_t *dims);

/* Begins a made storage, whose ranges follow; false when out of memory. */
bool rfs_document_begin(struct rfs_document *document);
/* A made storage of BYTES bytes that come from elsewhere: a target of a parameter list. */
bool rfs_document_reserve(struct rfs_document *document, uint64_t bytes);
bool rfs_document_range(struct rfs_document *document, const struct rfs_range *range);
/*
 * A row-major tensor of DTYPE over the storage that was begun last, whose node has its number among
 * the made ones. NULL when out of memory.
 */
struct rfs_node *rfs_document_tensor(struct rfs_document *document, enum rfs_dtype dtype,
                                     uint32_t ndim, const uint64_t *dims);

/*
 * A document whose root is a dict of the parameter list's tensors by their shown names; made
 * storage K is target K's. 0, -ENOMEM, or -EINVAL with *err filled for types that torch lacks.
 */
int rfs_document_params(struct rfs_document *document, struct rfs_catalog *catalog,
                        const struct rfs_params *params, struct rfs_error *err);
