/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sharding strategy: how each parameter is cut over the devices of each pipeline stage. Made from
 * the bytes of a strategy file, in protobuf (any name) or JSON (a name that ends in .json), single
 * or merged over pipeline stages, or by rules. Immutable once made.
 *
 * Layouts are checked as they are added (tensor_layout.h); in the end, stages 0 to n-1 must all be
 * present, with equal numbers of devices. strategy.c names the source of the format.
 *
 * Cost: one rfs_layout for each distinct layout, 16 bytes for each parameter and stage, and the
 * names.
 */
#pragma once

#include "layout/tensor_layout.h"

/* The largest file that is read: parsing takes memory for every item that it may name. */
#define RFS_STRATEGY_BYTES ((size_t)256 << 20)

struct rfs_strategy;

/*
 * Parses a strategy file (strategy_doc.c). NAME decides between protobuf and JSON and is used in
 * messages. -EINVAL with *err filled when the bytes are not a strategy.
 */
int rfs_strategy_parse(const char *name, const void *data, size_t size, struct rfs_strategy **out,
                       struct rfs_error *err);
void rfs_strategy_free(struct rfs_strategy *strategy);
/* Says whether a file of that name is read as JSON. */
bool rfs_strategy_is_json(const char *name);

/* Returns the name of the file, or of what the strategy was made from. */
const char *rfs_strategy_name(const struct rfs_strategy *strategy);
uint32_t rfs_strategy_stages(const struct rfs_strategy *strategy);
/* Returns the devices of one stage; all have as many. */
uint32_t rfs_strategy_devices(const struct rfs_strategy *strategy);
/* What is known of a strategy as a whole. */
struct rfs_strategy_facts {
    bool has_items;            /* the file had strategy items; its stage is that of the first */
    uint32_t first_item_stage; /* 0 if there is none (a file of one stage of several) */
    bool merged;               /* some names had a stage before them, as in files of all stages */
    /*
     * It was made by rules (layout_rules.h): then it has every tensor of the files that they were
     * made for.
     */
    bool by_rules;
    /*
     * It is that of an export (rfs_strategy_rename), which may leave out any parameter, and has
     * what no strategy knows.
     */
    bool exported;
};
const struct rfs_strategy_facts *rfs_strategy_facts(const struct rfs_strategy *strategy);
/* Says whether any layout has a manual split. */
bool rfs_strategy_has_splits(const struct rfs_strategy *strategy);
/*
 * Returns the number of parameters: distinct names, without their stage, in the order of the file.
 */
size_t rfs_strategy_count(const struct rfs_strategy *strategy);
const char *rfs_strategy_param(const struct rfs_strategy *strategy, size_t i);
/* Returns the number of distinct layouts, whose ids are below it. */
size_t rfs_strategy_layouts(const struct rfs_strategy *strategy);

/* The remedy where a source needs a strategy and none is given; commands name their own option. */
#define RFS_STRATEGY_WANTED "src_strategy=FILE, which says how they were cut"
/* The refusal of a strategy for a source that needs none. */
#define RFS_STRATEGY_UNWANTED "the source describes its own cuts, and takes no strategy"

/* Returns the position of the parameter, or -1. O(1). */
ptrdiff_t rfs_strategy_find(const struct rfs_strategy *strategy, const char *param);
/* Returns the layout of parameter I in STAGE, or NULL when that stage does not have it. */
const struct rfs_layout *rfs_strategy_layout(const struct rfs_strategy *strategy, size_t i,
                                             uint32_t stage);

#define RFS_NO_STAGE UINT32_MAX
#define RFS_NO_RANK UINT32_MAX
/*
 * Returns the lowest stage from STAGE up that has parameter I, or RFS_NO_STAGE. O(log stages), as
 * the layout.
 */
uint32_t rfs_strategy_next_stage(const struct rfs_strategy *strategy, size_t i, uint32_t stage);

/*
 * Lets parameters be found by the names that an export shows them by. SHOWN gives that of a name,
 * or NULL for one that was left out. A strategy file may have names of either spelling: there, a
 * name counts before one that is shown by it, and stays. 0 or -ENOMEM.
 */
int rfs_strategy_rename(struct rfs_strategy *strategy,
                        const char *(*shown)(const void *ctx, const char *name), const void *ctx);

/*
 * Computes the XXH3-128 of a strategy's contents, without its file name: strategies with equal
 * digests are equal. O(parameters and their stages). 0, or -1 when out of memory.
 */
int rfs_strategy_digest(const struct rfs_strategy *strategy, uint64_t digest[2]);

/* ---- building ---- */

struct rfs_strategy_builder;

/*
 * Begins a strategy; NAME is copied. FACTS are those that are known before its parameters; NULL:
 * none. NULL when out of memory.
 */
struct rfs_strategy_builder *rfs_strategy_builder_new(const char *name,
                                                      const struct rfs_strategy_facts *facts);
/* Frees a builder, which may be NULL. */
void rfs_strategy_builder_cleanup(struct rfs_strategy_builder **builder);

/*
 * Checks and adds an item; one with the name and stage of an earlier one replaces that. Sets the
 * layout's id. 0, or -errno with the item's error object filled.
 */
int rfs_strategy_builder_add(struct rfs_strategy_builder *builder, struct rfs_layout_builder *item);
/*
 * Adds a parameter of STAGE, its name without a prefix, whose layout was added as LAYOUT_ID. 0, or
 * -errno with *err filled.
 */
int rfs_strategy_builder_place(struct rfs_strategy_builder *builder, const char *name, size_t bytes,
                               uint32_t stage, uint32_t layout_id, struct rfs_error *err);
/*
 * Adds a layout that is known to be right. Sets its id, and returns it. When memory runs out, the
 * id is 0, and rfs_strategy_builder_finish fails.
 */
uint32_t rfs_strategy_builder_layout(struct rfs_strategy_builder *builder,
                                     struct rfs_layout *layout);
/*
 * Makes the strategy of all that was added, once all stages and devices are found to agree. *out is
 * the caller's; the builder can only be freed then. 0, or -errno with *err filled.
 */
int rfs_strategy_builder_finish(struct rfs_strategy_builder *builder, struct rfs_strategy **out,
                                struct rfs_error *err);
/* Says whether two layouts are equal as written; ids do not count. */
bool rfs_strategy_same_layout(const struct rfs_layout *a, const struct rfs_layout *b);
