/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture of a parameter: its source cells, its destination slices and the pieces that go from
 * the ones to the others, all as boxes in the whole tensor.
 *
 * Where one axis alone is cut it is a flow: two bars and bands between them. Else the tensor is
 * drawn twice, by the last two cut axes; other cut axes are folded: a row of drawings for each
 * interval between their cuts.
 */
#pragma once

#include "formats/chunks/chunks.h"
#include "tool/common/svg.h"
#include "tool/explain/explained.h"

#define PICTURE_MOST 4096 /* cells, or slices; more are not drawn */
#define PICTURE_WIDTH 880.0

/* A cell of the source's grid, or a slice of the destination: one box of each of them. */
struct drawn {
    struct rfs_box box;
    uint32_t colour;
    uint32_t number;         /* of a slice, in the order of the ranks */
    bool touched;            /* some piece is of it */
    RFS_VEC(uint32_t) ranks; /* that hold it, or of a cell those that give it, ascending */
    uint32_t holders;        /* ranks that hold the cell */
};

struct drawn_piece {
    struct rfs_box box;
    uint32_t from, to; /* positions in cells, slices */
    uint64_t bytes;
};

struct picture {
    const struct rfs_explain *explain;
    uint32_t ndim;
    uint64_t whole[RFS_MAX_DIMS];
    /* there is no grid: cells are the source ranks that give it whole, slices are ranks */
    bool copied;
    bool uncut; /* the destination has no grid; dst is that of one piece */
    struct rfs_grid src, dst;
    const struct rfs_chunks *boxes; /* cells are chunks of this tensor; NULL: of src */
    const struct rfs_chunked_tensor *boxed;
    uint32_t base; /* the global rank of the source grid's rank 0 */
    RFS_VEC(struct drawn) cells, slices;
    RFS_VEC(struct drawn_piece) pieces;
    char *title, *subtitle;     /* owned, as the next members */
    char *source, *destination; /* "source: axis 0 in 8" */
};

/* Into how many pieces the source cuts an axis, and where the one that AT is in ends. */
uint32_t rfs_picture_pieces(const struct picture *picture, uint32_t axis);
uint64_t rfs_picture_source_end(const struct picture *picture, uint32_t axis, uint64_t at);
/* Of chunks: adds all as cells (-1: no memory), and finds the cell that a place is in. */
int rfs_picture_add_chunks(struct picture *picture);
size_t rfs_picture_chunk_at(const struct picture *picture, const uint64_t *at);
/* False when out of memory. */
bool rfs_drawn_add_rank(struct drawn *drawn, uint32_t rank);

/* Axes that are cut by either side, ascending; how many. */
uint32_t rfs_picture_cut_axes(const struct picture *picture, uint32_t *axes);
/* "rank 3", "ranks 0, 4", "rank 0 and 7 more"; those of the source have words of their own. */
void rfs_picture_ranks(const struct picture *picture, const struct drawn *drawn, bool source,
                       char *out, size_t cap);
/* "0:96" along an axis, or "all of it". */
void rfs_picture_range(const struct picture *picture, const struct rfs_box *box, uint32_t axis,
                       char *out, size_t cap);

/*
 * The drawing below the title: AXIS is the one that is cut. Each gives its height, and draws where
 * OUT is not NULL.
 */
double rfs_picture_flow(const struct picture *picture, uint32_t axis, FILE *out, double top);
double rfs_picture_panels(const struct picture *picture, FILE *out, double top);
