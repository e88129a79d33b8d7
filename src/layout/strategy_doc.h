/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strategy file as it is written: the message of proto/node_strategy.proto, with the operators'
 * strategies and the stage, which a strategy (strategy.h) does not keep. Both forms of a file are
 * read into it and written from it, and every strategy of a file is made from it.
 *
 * JSON and protobuf each lack something. Protobuf says which axes of a tensor are cut by several
 * device axes (a nested tensor map), JSON has that flattened; JSON has the tensor's shape, expanded
 * likewise, protobuf has none. A struct rfs_strategy_doc_shape stands beside each layout for that.
 * A caller that knows the tensor gives its shape (rfs_strategy_doc_set_shape). The writers refuse
 * documents that would lose data otherwise.
 *
 * Costs about 450 bytes for each parameter and 250 for each operator, besides names, and never more
 * than RFS_STRATEGY_DOC_BYTES. Not thread-safe.
 */
#pragma once

#include "base/arena.h"
#include "base/budget.h"
#include "layout/strategy.h"

#include "proto/node_strategy.pb-c.h"

/* The memory of one document. A file that needs more is refused. */
#define RFS_STRATEGY_DOC_BYTES ((size_t)48 << 20)

/* The facts of a layout that JSON has and the message has not. */
struct rfs_strategy_doc_shape {
    bool flat;  /* the tensor map may be a nested one */
    bool known; /* dims is the shape of the whole tensor, expanded as the map is */
    uint32_t n;
    int64_t *dims; /* the document's */
};

struct rfs_strategy_doc {
    const char *name; /* of the file, for messages; borrowed */
    struct rfs_arena arena;
    struct rfs_budget budget;
    int no_room; /* why memory was refused: -ENOMEM, or -EFBIG for the budget */
    /* current_stage is MindSpore's counter, not a pipeline stage; 1 in merged files. */
    Straspb__ParallelStrategyMap map;
    struct rfs_strategy_doc_shape *shapes; /* one for each of map.parallel_layout_item */
    size_t most_nodes, most_params;        /* room in the arrays of map */
    struct rfs_error lost; /* why the file cannot be written again; code 0: it can */
};

/* Prepares an empty document; NAME is borrowed. */
void rfs_strategy_doc_begin(struct rfs_strategy_doc *doc, const char *name);
/* Frees all that the document has; one of zeroes, too. */
void rfs_strategy_doc_free(struct rfs_strategy_doc *doc);

/*
 * Reads a file, in JSON if its NAME ends in .json, else in protobuf, into an empty document. Of
 * items of one name in JSON the last counts, in the place of the first. Fills doc->lost if the
 * document cannot hold all of the file. 0, or -errno with *err filled.
 */
int rfs_strategy_doc_parse(struct rfs_strategy_doc *doc, const void *data, size_t size,
                           struct rfs_error *err);
/* Makes the strategy of a document. 0 with *out owned by the caller, or -errno with *err filled. */
int rfs_strategy_doc_build(const struct rfs_strategy_doc *doc, struct rfs_strategy **out,
                           struct rfs_error *err);

/*
 * Sets the shape of parameter I: NDIM axes of WHOLE elements. -EINVAL with *err filled when it is
 * not that of the file's layout.
 */
int rfs_strategy_doc_set_shape(struct rfs_strategy_doc *doc, size_t i, uint32_t ndim,
                               const uint64_t *whole, struct rfs_error *err);

/* Tells the number of axes of a tensor, for layouts that rules leave open. */
struct rfs_strategy_doc_tensors {
    /* Returns the number of axes, or -1 when the tensor is not known. */
    int (*ndim)(void *ctx, const char *param, uint32_t stage);
    void *ctx;
};
/*
 * Makes the document of a strategy that has no file: of rules, or of a tree. Names get their stage
 * if there are several. Each stage gets one operator without inputs, because MindSpore refuses to
 * merge or to transform by files without operators. TENSORS may be NULL. 0, or -errno with *err
 * filled.
 */
int rfs_strategy_doc_make(const struct rfs_strategy *strategy,
                          const struct rfs_strategy_doc_tensors *tensors,
                          struct rfs_strategy_doc *doc, struct rfs_error *err);

/*
 * Appends the file of a pipeline's stage as merge_pipeline_strategys does: parameters get the
 * number of the stage before their names. INTO borrows from FROM. False when out of memory.
 */
bool rfs_strategy_doc_append(struct rfs_strategy_doc *into, const struct rfs_strategy_doc *from,
                             uint32_t stage);

/*
 * Writes the bytes of a protobuf file, malloc'ed. 0, -ENOMEM, or -EINVAL with *err filled for what
 * the form cannot hold.
 */
int rfs_strategy_doc_protobuf(const struct rfs_strategy_doc *doc, char **data, size_t *size,
                              struct rfs_error *err);
/*
 * Writes the bytes of a JSON file, malloc'ed. MERGED: as merge_pipeline_strategys writes (Python's
 * json.dump, in the order at hand), else as the compiler does (names in byte order, no spaces). Of
 * items of one name the last counts, in the place of the first. 0, -ENOMEM, or -EINVAL with *err
 * filled for what the form cannot hold.
 */
int rfs_strategy_doc_json(const struct rfs_strategy_doc *doc, bool merged, char **data,
                          size_t *size, struct rfs_error *err);

/* ---- inside the room ---- */

/* Reads a JSON file into an empty document. 0, or -errno with *err filled; -ENOMEM: no room. */
int rfs_strategy_doc_parse_json(struct rfs_strategy_doc *doc, const char *data, size_t size,
                                struct rfs_error *err);

/* ---- for makers of documents ---- */

/* Makes room for so many more operators and parameters. False when out of memory. */
bool rfs_strategy_doc_reserve(struct rfs_strategy_doc *doc, size_t nodes, size_t params);
/* Adds an operator of STAGE without inputs, in reserved room. NULL when out of memory. */
Straspb__ParallelStrategys *rfs_strategy_doc_add_node(struct rfs_strategy_doc *doc,
                                                      const char *name, size_t length,
                                                      uint32_t stage);
/* Adds an input to an operator: the cuts of its axes. False when out of memory. */
bool rfs_strategy_doc_add_input(struct rfs_strategy_doc *doc, Straspb__ParallelStrategys *node,
                                const uint32_t *cuts, size_t n);
/*
 * Adds a parameter, in reserved room; NAME has its stage, if the file has several. Returns its
 * layout, which is empty, or NULL when out of memory.
 */
Straspb__ParallelLayouts *rfs_strategy_doc_add_param(struct rfs_strategy_doc *doc, const char *name,
                                                     size_t length);
/* The repeated fields of a layout. */
enum rfs_strategy_doc_list {
    RFS_STRATEGY_DOC_DEV,
    RFS_STRATEGY_DOC_MAP,
    RFS_STRATEGY_DOC_SPLIT,
    RFS_STRATEGY_DOC_OFFSETS
};
/* Adds NUMBERS to a layout as one message of the field LIST. False when out of memory. */
bool rfs_strategy_doc_add_list(struct rfs_strategy_doc *doc, Straspb__ParallelLayouts *layouts,
                               enum rfs_strategy_doc_list list, const int64_t *numbers, size_t n);
/*
 * Adds a parameter, in reserved room, with all of a layout that nothing leaves open. False when out
 * of memory.
 */
bool rfs_strategy_doc_make_layout(struct rfs_strategy_doc *doc, const char *name,
                                  const struct rfs_layout *from);
/* Returns memory of the document, or NULL when there is none, or no budget. */
void *rfs_strategy_doc_alloc(struct rfs_strategy_doc *doc, size_t bytes);
/* Returns the place to note a loss at: NULL when one is noted already. */
static inline struct rfs_error *rfs_strategy_doc_lost(struct rfs_strategy_doc *doc)
{
    return doc->lost.code == 0 ? &doc->lost : NULL;
}
/* Refuses a document that lacks a part of its file. 0, or its loss with *err filled. */
static inline int rfs_strategy_doc_check_lost(const struct rfs_strategy_doc *doc,
                                              struct rfs_error *err)
{
    if (doc->lost.code && err)
        *err = doc->lost;
    return doc->lost.code;
}
/* Returns the name of an item as a text, which may end early at a NUL. */
const char *rfs_strategy_doc_text(ProtobufCBinaryData name);
