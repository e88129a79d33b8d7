/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of what inspect.h tells of copy runs and of sums: ranges of bytes of a file, the elements
 * of boxes together, and the sums of slices. Not thread-safe.
 */
#pragma once

#include "plan/trace.h"
#include "view/inspect.h"

/*
 * Appends the ranges of a block: none for zeros, else one, unless the tensor lies in several extents
 * (a .ckpt has one for each 512 MiB): then up to one a loop for each extent, and one more for each
 * boundary. Their runs have the order of the block's elements. False when out of memory.
 */
bool rfs_explained_ranges_add(const struct rfs_block *block, struct rfs_explained_ranges *out);
/* Sorts loops by stride, largest first, which is the order of the file; joins adjacent runs. */
void rfs_explained_range_sort(struct rfs_explained_range *range);

/* Returns the bytes of the file that a block takes, each counted once; of codes, without scales. */
uint64_t rfs_explained_block_bytes(const struct rfs_block *block);

struct rfs_explained_boxes {
    struct rfs_box *data;
    size_t n, cap;
};

/*
 * Sets *VOLUME to the elements that boxes of NDIM axes cover together, each counted once. The boxes
 * may overlap in any way, lie in a tensor of fewer than 2^64 elements, and are reordered.
 * O(n log n) an axis for the cells of a grid, however often each comes; n² at worst. False when
 * out of memory.
 */
bool rfs_explained_boxes_volume(struct rfs_explained_boxes *boxes, uint32_t ndim, uint64_t *volume);

/* Returns the path of a source file below the source's folder. */
const char *rfs_explained_path(const struct rfs_explained_view *view, uint32_t file);
/* Returns the type of the source rank's slice, or of the chunk, that a piece without a link is in. */
const struct rfs_type *rfs_explained_type(const struct rfs_explained_view *view,
                                          const struct rfs_piece_trace *piece);

/* The box that is taken of a parameter in a file. */
struct rfs_explained_taken {
    uint32_t file, rank, ndim;
    uint64_t item; /* bytes of an element */
    /* the link whose digits are the axes of the box; NULL: they are a tensor's */
    const struct rfs_rules_link *link;
    const struct rfs_quant *quant; /* the elements are stored as codes; or NULL */
    struct rfs_box box;
};

/* Sums in the making. */
struct rfs_explained_sum {
    const struct rfs_explained_view *view;
    struct rfs_explained_totals *totals;
    uint64_t times; /* parameters that are counted at once, as they are like the current one */
    RFS_VEC(struct rfs_explained_taken) now; /* boxes of the current parameter */
    struct rfs_explained_boxes boxes;        /* scratch: boxes of one file */
};

/* Begins with nothing; *SUM is to be ended in any case. Returns false when out of memory. */
bool rfs_explained_sum_begin(const struct rfs_explained_view *view,
                             struct rfs_explained_totals *totals, struct rfs_explained_sum *sum);
/* Adds a slice of the current parameter. False when out of memory. */
bool rfs_explained_sum_add(struct rfs_explained_sum *sum, const struct rfs_explained *slice);
/* Ends the current parameter: adds it to TOGETHER. False when out of memory. */
bool rfs_explained_sum_next(struct rfs_explained_sum *sum);
void rfs_explained_sum_end(struct rfs_explained_sum *sum);
