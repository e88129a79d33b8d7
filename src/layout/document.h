/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strategy file as it is written, to be written again: with the operators' strategies and the
 * stage, which a strategy (strategy.h) does not keep, and with all that MindSpore reads back. It is
 * read together with the strategy, by the same readers.
 *
 * Two things are in one form only. Protobuf says which axes of a tensor are cut by several device
 * axes (a nested tensor map), JSON has that flattened; JSON has the tensor's shape, expanded
 * likewise, protobuf has none. The caller that knows the tensor gives its shape
 * (rfs_strategy_doc_shape). The writers refuse documents that would lose data otherwise.
 *
 * Costs 8 bytes for each parameter and operator, the names, and about 800 bytes for each distinct
 * layout. Not thread-safe.
 */
#pragma once

#include "base/intern.h"
#include "base/vec.h"
#include "layout/strategy.h"

/* A name and its item, as ids of the document's pool. */
struct rfs_doc_item {
    uint32_t name;
    uint32_t value; /* of parameters a struct rfs_doc_layout, of operators their numbers */
};
struct rfs_doc_items {
    struct rfs_doc_item *data;
    size_t n, cap;
};

struct rfs_doc_layout {
    struct rfs_layout layout; /* dev, map and expanded as written; nothing is resolved */
    int64_t field, opt_step, opt_size;
    uint32_t split, offsets; /* numbers of a manual split */
    uint32_t flat;           /* as JSON has it: it may be a nested map */
    uint32_t per_axis;       /* as protobuf has nested maps: each axis has its own map */
    uint32_t has_shape;      /* expanded is the shape of the whole tensor, expanded as the map is */
    uint32_t unused;         /* the struct has no gaps: its bytes are compared */
};

struct rfs_strategy_doc {
    const char *name;        /* of the file, for messages; borrowed */
    struct rfs_intern *pool; /* names, layouts and lists of numbers (int64_t), each once */
    int64_t current_stage;   /* MindSpore's counter, not a pipeline stage; 1 in merged files */
    /* operators: stage, number of inputs, and of each the number of cuts and the cuts */
    struct rfs_doc_items nodes;
    struct rfs_doc_items params; /* their names have a stage before them in merged files */
    RFS_VEC(int64_t) numbers;    /* of the operator that is being read */
    size_t input;                /* where in it the last input begins */
    struct rfs_error lost;       /* why it cannot be written again; code 0: it can */
};

/* Also a document of zeroes. */
void rfs_strategy_doc_free(struct rfs_strategy_doc *doc);

/*
 * As rfs_strategy_parse, which gives the document, too. Of names that a JSON file has twice the
 * last counts, in the place of the first. -EINVAL with *err filled also for a loss.
 */
int rfs_strategy_doc_parse(const char *name, const void *data, size_t size,
                           struct rfs_strategy_doc *doc, struct rfs_strategy **out,
                           struct rfs_error *err);

const char *rfs_strategy_doc_param(const struct rfs_strategy_doc *doc, size_t i);
const struct rfs_doc_layout *rfs_strategy_doc_layout(const struct rfs_strategy_doc *doc, size_t i);

/*
 * The whole shape of the tensor of parameter I. -EINVAL with *err filled when it is not that of the
 * file's layout.
 */
int rfs_strategy_doc_shape(struct rfs_strategy_doc *doc, size_t i, uint32_t ndim,
                           const uint64_t *whole, struct rfs_error *err);

/*
 * A strategy made by rules (layouts that are open need NDIM, see below), or any other without a
 * file. Names get their stage if there are several. Each stage gets one operator of no inputs, as
 * MindSpore refuses to merge or to transform by files without operators.
 */
struct rfs_doc_tensors {
    /* The tensor's number of axes; -1 when the tensor is not known. */
    int (*ndim)(void *ctx, const char *param, uint32_t stage);
    void *ctx;
};
int rfs_strategy_doc_make(const struct rfs_strategy *strategy,
                          const struct rfs_doc_tensors *tensors, struct rfs_strategy_doc *doc,
                          struct rfs_error *err);

/*
 * The bytes of a file, malloc'ed. 0, -ENOMEM, or -EINVAL with *err filled for what the form cannot
 * hold.
 */
int rfs_strategy_doc_protobuf(const struct rfs_strategy_doc *doc, char **data, size_t *size,
                              struct rfs_error *err);
/*
 * MERGED: as merge_pipeline_strategys writes (Python's json.dump, in the order at hand), else as
 * the compiler does (names in byte order, no spaces). Of items with one name the last counts, in
 * the place of the first.
 */
int rfs_strategy_doc_json(const struct rfs_strategy_doc *doc, bool merged, char **data,
                          size_t *size, struct rfs_error *err);

/* ---- inside the room ---- */

struct rfs_layout_builder;

/* An empty one. False when out of memory. */
bool rfs_strategy_doc_begin(struct rfs_strategy_doc *doc, const char *name);
/* Both of one file, losses only noted in doc->lost; DOC may be NULL. */
int rfs_strategy_doc_read(const char *name, const void *data, size_t size,
                          struct rfs_strategy_doc *doc, struct rfs_strategy **out,
                          struct rfs_error *err);
/* Notes the layout of an item as it was read: sets item->written. False when out of memory. */
bool rfs_strategy_doc_keep(struct rfs_layout_builder *item);
/* Adds the parameter of an item, whose layout is item->written. False when out of memory. */
bool rfs_strategy_doc_add(const struct rfs_layout_builder *item);
/*
 * An operator: begun, for each input begun and given its cuts, and added under a name that is in
 * the pool. False when out of memory.
 */
bool rfs_strategy_doc_node(struct rfs_strategy_doc *doc);
bool rfs_strategy_doc_input(struct rfs_strategy_doc *doc);
bool rfs_strategy_doc_cut(struct rfs_strategy_doc *doc, int64_t cut);
bool rfs_strategy_doc_node_end(struct rfs_strategy_doc *doc, uint32_t name, uint32_t stage);
/* Of items of one name the last, in the place of the first. False when out of memory. */
bool rfs_strategy_doc_once(const struct rfs_strategy_doc *doc, struct rfs_doc_items *items);
/* Where to note a loss: NULL when there is no document, or one is noted already. */
struct rfs_error *rfs_strategy_doc_lost(struct rfs_strategy_doc *doc);
/*
 * Appends the file of a pipeline's stage as merge_pipeline_strategys does: parameters get the
 * number of the stage before their names. False when out of memory.
 */
bool rfs_strategy_doc_merge(struct rfs_strategy_doc *into, const struct rfs_strategy_doc *from,
                            uint32_t stage);

struct rfs_doc_numbers {
    const int64_t *data;
    size_t n;
};
struct rfs_doc_numbers rfs_strategy_doc_numbers(const struct rfs_strategy_doc *doc, uint32_t id);
/* Whether any axis has several device axes. */
bool rfs_doc_is_nested(const struct rfs_doc_layout *layout);
