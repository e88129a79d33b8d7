/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of one parameter, as a strategy says it, and how one is built. Everything that can be
 * checked without a tensor is checked here: axes in range and used once, products that don't
 * overflow, optimizer shards that fit the repeated axes. grid.h puts a layout on a tensor.
 *
 * A builder begins an item, fills it in as the file has it, and checks it. Its functions give 0 or
 * -errno with the error object filled.
 *
 * Threads: all functions; a builder belongs to one thread.
 */
#pragma once

#include "base/error.h"
#include "base/vec.h"

#define RFS_MAX_DEVICE_AXES 16
#define RFS_MAX_CUTS 32 /* tensor map entries, over all tensor axes */
#define RFS_MAX_DEVICES (UINT32_C(1) << 20)
#define RFS_MAX_PARTS (1 << 16) /* of a tensor that is cut by field */

enum rfs_unclear { RFS_CLEAR, RFS_UNCLEAR_OFFSETS, RFS_UNCLEAR_SPLIT, RFS_UNCLEAR_FIELD };

/* The layout of a parameter as written. Equal layouts of one strategy share one object. */
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
     * Field slicing: so many fields lie one after the other on an axis, axis 0 in strategy files,
     * and each device holds an equal part of every field. 0: none.
     */
    uint32_t field, field_axis;
    enum rfs_unclear unclear; /* why it is not proved which rank holds what: refused when used */
};

/* Returns the number of tensor map entries over all axes. */
static inline uint32_t rfs_layout_cuts(const struct rfs_layout *layout)
{
    return layout->start[layout->n_axes];
}

/* Returns the position in dev of a tensor map entry, which must not be -1. */
static inline uint32_t rfs_layout_position(const struct rfs_layout *layout, int32_t device_axis)
{
    return layout->n_dev - 1 - (uint32_t)device_axis;
}

/* Returns the unclear property of the layout as a text, or NULL. */
const char *rfs_layout_unclear(const struct rfs_layout *layout);

/* Returns a mask: bit p is set when dev[p] cuts a tensor axis. */
uint32_t rfs_layout_used(const struct rfs_layout *layout);

/*
 * Finds how an optimizer shard of SIZE pieces uses the repeated device axes: part[p] is the extent
 * of the inner part of dev[p] that cuts axis 0 (1: none of it). The rightmost repeated axis is used
 * first. False when SIZE is not made of whole axes and at most one part.
 */
bool rfs_layout_opt_parts(const struct rfs_layout *layout, uint64_t size, uint32_t *part);

/*
 * Makes the layout for a tensor of NDIM axes that an open one stands for: map entries by axis, in
 * order. -EINVAL with *err filled when it cuts an axis that the tensor does not have, or one twice.
 * OPEN must be open, NDIM at most RFS_MAX_CUTS.
 */
int rfs_layout_close(const struct rfs_layout *open, uint32_t ndim, struct rfs_layout *closed,
                     struct rfs_where where, struct rfs_error *err);

/*
 * Returns which slice a rank holds, as an opaque number below layout->devices: ranks with equal
 * numbers hold equal slices of any tensor.
 */
uint32_t rfs_layout_slice(const struct rfs_layout *layout, uint32_t rank);

/*
 * Returns how many rows (extent of axis 0) a rank's slice of any tensor has under a layout with
 * edges; 0 for layouts without.
 */
uint64_t rfs_layout_rows(const struct rfs_layout *layout, uint32_t rank);

/* ---- building ---- */

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

/* What to try where numbers of a layout are wrong. */
#define RFS_LAYOUT_REMEDY "the strategy file that MindSpore saved for this checkpoint"

/* Empties the item for the next parameter; FILE and ERR stay. */
void rfs_layout_begin(struct rfs_layout_builder *item, const char *name, size_t bytes);
/* Frees what the builder owns; one of zeroes, too. */
void rfs_layout_end(struct rfs_layout_builder *item);

/* Adds the next device axis, outermost first. */
int rfs_layout_add_dev(struct rfs_layout_builder *item, int64_t extent);
/* Begins the next tensor axis; the cuts that follow are its. */
int rfs_layout_add_axis(struct rfs_layout_builder *item);
int rfs_layout_add_cut(struct rfs_layout_builder *item, int64_t device_axis);
/* Makes the checks that need no tensor, and resolves the optimizer shard and the manual split. */
int rfs_layout_check(struct rfs_layout_builder *item);
/* Reports an error about this item. */
int rfs_layout_fail(const struct rfs_layout_builder *item, const char *remedy, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
