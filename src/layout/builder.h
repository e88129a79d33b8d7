/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room, and for `reshard strategy new`: how a strategy is built, one parameter's layout
 * after the other.
 *
 * A reader begins an item, fills it in as the file has it, and adds it to the strategy, which
 * checks it. Every function gives 0 or -errno with the error object filled.
 */
#pragma once

#include "base/vec.h"
#include "layout/strategy.h"

struct rfs_layout_builder {
    const char *file;      /* for messages; borrowed, as all pointers here */
    struct rfs_error *err; /* may be NULL */
    const char *name;      /* with its stage prefix; not terminated */
    size_t name_bytes;
    /* Everything as written, opt_step and opt_size not yet set. Bytes in between are zero. */
    struct rfs_layout layout;
    int64_t opt_step;
    int64_t opt_size;
    int64_t field;
    RFS_VEC(uint64_t) rows;   /* of the manual split; owned, used again for the next item */
    RFS_VEC(int64_t) offsets; /* entries of indices_offset; owned likewise */
};

/* Also of zeroes. */
void rfs_layout_end(struct rfs_layout_builder *item);

/* Empties the item for the next item; FILE and ERR stay. */
void rfs_layout_begin(struct rfs_layout_builder *item, const char *name, size_t bytes);
/* The next device axis, outermost first. */
int rfs_layout_add_dev(struct rfs_layout_builder *item, int64_t extent);
/* Begins the next tensor axis; the cuts that follow are its. */
int rfs_layout_add_axis(struct rfs_layout_builder *item);
int rfs_layout_add_cut(struct rfs_layout_builder *item, int64_t device_axis);
/* The next entry of a JSON tensor_shape. */
int rfs_layout_add_expanded(struct rfs_layout_builder *item, int64_t extent);
/* The rows of the next slice of a manual split, and the next entry of its indices_offset. */
int rfs_layout_add_rows(struct rfs_layout_builder *item, int64_t rows);
int rfs_layout_add_offset(struct rfs_layout_builder *item, int64_t offset);
/* Makes the checks that need no tensor, and resolves the optimizer shard and the manual split. */
int rfs_layout_check(struct rfs_layout_builder *item);
/* The part of it that is about manual splits and fields; all else is resolved. */
int rfs_layout_check_manual(struct rfs_layout_builder *item);
/* An error about this item. */
int rfs_layout_fail(const struct rfs_layout_builder *item, const char *remedy, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Tensor map entries over all axes. */
static inline uint32_t rfs_layout_cuts(const struct rfs_layout *layout)
{
    return layout->start[layout->n_axes];
}

/* Position in dev of a tensor map entry, which must not be -1. */
static inline uint32_t rfs_layout_position(const struct rfs_layout *layout, int32_t device_axis)
{
    return layout->n_dev - 1 - (uint32_t)device_axis;
}

/* The unclear property of the layout, or NULL. */
const char *rfs_layout_unclear(const struct rfs_layout *layout);

/* Bit p is set when dev[p] cuts a tensor axis. */
uint32_t rfs_layout_used(const struct rfs_layout *layout);

/*
 * How an optimizer shard of SIZE pieces uses the repeated device axes: part[p] is the extent of the
 * inner part of dev[p] that cuts axis 0 (1: none of it). The rightmost repeated axis is used first.
 * False when SIZE is not made of whole axes and at most one part.
 */
bool rfs_layout_opt_parts(const struct rfs_layout *layout, uint64_t size, uint32_t *part);

/*
 * The layout for a tensor of NDIM axes that an open one stands for: map entries by axis, in order.
 * -EINVAL with *err filled when it cuts an axis that the tensor does not have, or one twice. OPEN
 * must be open, NDIM at most RFS_MAX_CUTS.
 */
int rfs_layout_close(const struct rfs_layout *open, uint32_t ndim, struct rfs_layout *closed,
                     struct rfs_where where, struct rfs_error *err);

/* Whether they are the same as written; ids do not count. */
bool rfs_layout_same(const struct rfs_layout *a, const struct rfs_layout *b);

struct rfs_strategy_builder;

/* NULL when out of memory. NAME (copied) is that of the strategy. */
struct rfs_strategy_builder *rfs_strategy_builder_new(const char *name);
void rfs_strategy_builder_free(struct rfs_strategy_builder *builder);
void rfs_strategy_builder_cleanup(struct rfs_strategy_builder **builder);

/*
 * Checks and adds an item; one of the same name and stage as an earlier one replaces that. Sets the
 * layout's id.
 */
int rfs_strategy_builder_add(struct rfs_strategy_builder *builder, struct rfs_layout_builder *item);
/* Adds a parameter of STAGE, its name without a prefix, whose layout was added as LAYOUT_ID. */
int rfs_strategy_builder_place(struct rfs_strategy_builder *builder, const char *name, size_t bytes,
                               uint32_t stage, uint32_t layout_id, struct rfs_error *err);
/*
 * The id of a layout that is known to be right, which is set in it, too. False when out of memory.
 */
bool rfs_strategy_builder_layout(struct rfs_strategy_builder *builder, struct rfs_layout *layout,
                                 uint32_t *id);
void rfs_strategy_builder_first_item_stage(struct rfs_strategy_builder *builder, uint32_t stage);
void rfs_strategy_builder_by_rules(struct rfs_strategy_builder *builder);
/*
 * The strategy of all that was added, once all stages and devices are found to agree. It is the
 * caller's; the builder can only be freed then.
 */
int rfs_strategy_builder_finish(struct rfs_strategy_builder *builder, struct rfs_strategy **out,
                                struct rfs_error *err);
