/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sharding strategy: how each parameter is cut over the devices of each pipeline stage. Read from
 * the bytes of a strategy file, in protobuf (any name) or JSON (a name that ends in .json), single
 * or merged over pipeline stages. Immutable once parsed.
 *
 * Everything that can be checked without a tensor is checked when parsing: axes in range and used
 * once, products that don't overflow, stages 0 to n-1 all present, the same devices in every stage,
 * optimizer shards that fit the repeated axes. strategy.c names the source of the format.
 *
 * Cost: one rfs_layout for each distinct layout, 16 bytes for each parameter and stage, and the
 * names.
 */
#pragma once

#include "base/error.h"

#define RFS_MAX_DEVICE_AXES 16
#define RFS_MAX_CUTS 32 /* tensor map entries, over all tensor axes */
#define RFS_MAX_DEVICES (UINT32_C(1) << 20)
#define RFS_MAX_PARTS (1 << 16) /* of a tensor that is cut by field */
/* No larger file is read: parsing takes memory for every item that it may name. */
#define RFS_STRATEGY_BYTES ((size_t)256 << 20)

enum rfs_unclear { RFS_CLEAR, RFS_UNCLEAR_OFFSETS, RFS_UNCLEAR_SPLIT, RFS_UNCLEAR_FIELD };

/* One parameter's layout as written. Equal layouts of one strategy share one object. */
struct rfs_layout {
    uint32_t id; /* dense, from 0, in one strategy */
    uint32_t n_dev;
    uint32_t dev[RFS_MAX_DEVICE_AXES]; /* device matrix, outermost axis first */
    uint32_t devices;                  /* product of dev */

    /*
     * Tensor map: axis i is cut by map[start[i]] … map[start[i+1]-1], outer to inner; each is a
     * device axis counted from the right of dev, or -1.
     */
    uint32_t n_axes;
    uint32_t start[RFS_MAX_CUTS + 1];
    int32_t map[RFS_MAX_CUTS];

    /*
     * JSON writes nested maps flattened, with the expanded shape beside them: n_axes is then the
     * number of entries, and the true axes are found again from a tensor's shape. Where an expanded
     * shape is given, expanded[i] belongs to entry i; n_expanded is 0 otherwise (protobuf).
     */
    uint32_t n_expanded;
    uint64_t expanded[RFS_MAX_CUTS];

    /*
     * Open (rules make such): for tensors of any number of axes. The last n_tail of the n_axes are
     * those at the tensor's end, the others those at its beginning; the dimensions between them are
     * not cut. One axis may be meant by both as long as only one of them cuts it.
     */
    bool open;
    uint32_t n_tail;
    uint32_t line; /* of the rules that it comes from; 0: from a strategy file */

    uint32_t opt_step; /* stride in ranks; informative, the cut follows from dev and map */
    /* pieces of the optimizer shard along axis 0; 0 or 1: none; -1 is resolved */
    uint32_t opt_size;

    /*
     * Manual split, of plain maps only: piece k of axis 0 is the rows edge[k] to edge[k + 1] of the
     * whole; edge[0] is 0, and all ascend. NULL, and n_edges 0: pieces of axis 0 are equal. The
     * strategy's.
     */
    uint32_t n_edges;
    const uint64_t *edge;
    /*
     * Field slicing: so many fields lie one after the other on axis 0 of a matrix, and each device
     * holds an equal part of every field. 0: none.
     */
    uint32_t field;
    enum rfs_unclear unclear; /* not proved which rank holds what; refused by use */
};

struct rfs_strategy;

/*
 * NAME decides between protobuf and JSON and is used in messages. -EINVAL with *err filled when the
 * bytes are not a strategy.
 */
int rfs_strategy_parse(const char *name, const void *data, size_t size, struct rfs_strategy **out,
                       struct rfs_error *err);
void rfs_strategy_free(struct rfs_strategy *strategy);
/* Whether a file of that name is read as JSON. */
bool rfs_strategy_is_json(const char *name);

const char *rfs_strategy_name(const struct rfs_strategy *strategy);
uint32_t rfs_strategy_stages(const struct rfs_strategy *strategy);
/* Devices of one stage; the same in all of them. */
uint32_t rfs_strategy_devices(const struct rfs_strategy *strategy);
/*
 * The stage that the first strategy item names, 0 if there is none (a file of one stage of
 * several).
 */
uint32_t rfs_strategy_first_item_stage(const struct rfs_strategy *strategy);
/* Whether it had strategy items; its stage is that of the first. */
bool rfs_strategy_has_items(const struct rfs_strategy *strategy);
/* Whether some of its names had a stage before them, as in files merged over stages. */
bool rfs_strategy_is_merged(const struct rfs_strategy *strategy);
/*
 * Whether it was made by rules (rules.h): then it has every tensor of the files that they were made
 * for.
 */
bool rfs_strategy_by_rules(const struct rfs_strategy *strategy);
/* Whether any of its layouts has a manual split. */
bool rfs_strategy_has_splits(const struct rfs_strategy *strategy);
/* Distinct parameter names, without their stage prefix, in the order of the file. */
size_t rfs_strategy_count(const struct rfs_strategy *strategy);
const char *rfs_strategy_param(const struct rfs_strategy *strategy, size_t i);
size_t rfs_strategy_layouts(const struct rfs_strategy *strategy);

/*
 * Lets parameters be found by the names that an export shows them by. SHOWN gives that of a name,
 * or NULL for one that was left out. A strategy file may have names of either spelling: there, a
 * name counts before one that is shown by it, and stays. 0 or -ENOMEM.
 */
int rfs_strategy_rename(struct rfs_strategy *strategy,
                        const char *(*shown)(const void *ctx, const char *name), const void *ctx);

/* Position of the parameter, or -1. O(1). */
ptrdiff_t rfs_strategy_find(const struct rfs_strategy *strategy, const char *param);
/* The layout of parameter i in STAGE, or NULL when that stage does not have it. */
const struct rfs_layout *rfs_strategy_layout(const struct rfs_strategy *strategy, size_t i,
                                             uint32_t stage);

#define RFS_NO_STAGE UINT32_MAX
/*
 * The lowest stage from STAGE up that has parameter i, or RFS_NO_STAGE. O(log stages), as the
 * layout.
 */
uint32_t rfs_strategy_next_stage(const struct rfs_strategy *strategy, size_t i, uint32_t stage);
