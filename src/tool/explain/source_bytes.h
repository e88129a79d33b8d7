/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that destination ranks take from source files: sums for each rank, and for all of them
 * together with each byte counted once, as on a node that keeps what it has read. And copy runs as
 * ranges of bytes of a file. Not thread-safe.
 *
 * Cost of sums: 16 bytes for each pair of a rank and a file that gives it something; and of one
 * parameter at a time the boxes of all ranks, 280 bytes each. Parameters of the same geometries are
 * counted once, where all files list the same.
 */
#pragma once

#include "base/vec.h"
#include "view/inspect.h"

/* ---- ranges of a file ------------------------------------------------------------------------ */

/*
 * RUN bytes at OFFSET + Σ i_k * loop[k].stride for all i_k below loop[k].count, outermost loop
 * first. Strides are 0 where the same bytes are taken over and over, as of a tensor that torch
 * expanded.
 */
struct rfs_explain_range {
    uint64_t offset; /* offset in the file, bytes */
    uint64_t run;
    uint32_t n_loops;
    struct {
        uint64_t count, stride;
    } loop[RFS_MAX_DIMS];
};

struct rfs_explain_ranges {
    struct rfs_explain_range *data;
    size_t n, cap;
};

/*
 * Appends the ranges of a block: one, but for a tensor that lies in several extents (a .ckpt has
 * one for each 512 MiB): then up to one a loop for each extent, and one more for each boundary.
 * Their runs have the order of the block's elements. False when out of memory.
 */
bool rfs_explain_ranges_add(const struct rfs_block *block, struct rfs_explain_ranges *out);

/* Sorts loops by stride, largest first, which is the order of the file; joins adjacent runs. */
void rfs_explain_range_sort(struct rfs_explain_range *range);

/* Returns the bytes of the file that a block takes, each counted once. */
uint64_t rfs_explain_block_bytes(const struct rfs_block *block);

/* ---- boxes together -------------------------------------------------------------------------- */

struct rfs_explain_boxes {
    struct rfs_box *data;
    size_t n, cap;
};

/*
 * Sets *VOLUME to the elements that boxes of NDIM axes cover together, each counted once. The boxes
 * may overlap in any way, lie in a tensor of fewer than 2^64 elements, and are reordered.
 * O(n log n) an axis for the cells of a grid, however often each comes; n² at worst. False when
 * out of memory.
 */
bool rfs_explain_boxes_volume(struct rfs_explain_boxes *boxes, uint32_t ndim, uint64_t *volume);

/* ---- sums ------------------------------------------------------------------------------------ */

/* The bytes that are taken from a source file. */
struct rfs_explain_source {
    uint32_t file; /* id in the catalogue's files */
    uint32_t rank; /* source rank that the file belongs to */
    uint64_t bytes;
};
struct rfs_explain_sources {
    struct rfs_explain_source *data; /* ascending by file */
    size_t n, cap;
};

/* The box that is taken of a parameter in a file. */
struct rfs_explain_bytes_box {
    uint32_t file, rank, ndim;
    uint64_t item; /* bytes of an element */
    /* the link whose digits are the axes of the box; NULL: they are a tensor's */
    const struct rfs_rules_link *link;
    struct rfs_box box;
};

struct rfs_explain_bytes {
    size_t n_ranks;
    struct rfs_explain_bytes_rank {
        struct rfs_explain_sources sources;
        uint64_t parameters, shown_bytes; /* bytes as shown */
    } * ranks;                            /* [n_ranks] by position in the view's selected ranks */
    struct rfs_explain_sources together;  /* each byte of a file once */
    uint64_t times; /* parameters that are counted at once, as they are like the current one */
    RFS_VEC(struct rfs_explain_bytes_box) now; /* boxes of the current parameter */
    struct rfs_explain_boxes boxes;            /* scratch: boxes of one file */
};

/* Begins with nothing. 0, or -ENOMEM with *err filled; to be freed in any case. */
int rfs_explain_bytes_begin(struct rfs_explain_bytes *bytes, size_t n_ranks, struct rfs_error *err);
/* Adds a slice of the current parameter: its target and trace. False when out of memory. */
bool rfs_explain_bytes_add(struct rfs_explain_bytes *bytes, const struct rfs_explained_view *view,
                           const struct rfs_explained *slice);
/* Ends the current parameter: adds it to TOGETHER. False when out of memory. */
bool rfs_explain_bytes_next(struct rfs_explain_bytes *bytes);
/* Frees what the sums own. */
void rfs_explain_bytes_free(struct rfs_explain_bytes *bytes);

/* Returns the sum of the bytes of some sources. */
uint64_t rfs_explain_sources_bytes(const struct rfs_explain_sources *sources);
