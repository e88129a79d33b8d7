/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes of tensors: the chunks that a box touches, each by the grid of its tensor, and where the
 * elements of each are. Threads: any, once the chunks are finished; a walk belongs to one.
 */
#pragma once

#include "formats/chunks/chunks.h"

/* A box of a tensor that one chunk has: the chunk itself, or a part of one that was flattened. */
struct rfs_chunk_box {
    uint32_t chunk;
    bool flat;
    uint64_t at[RFS_MAX_DIMS]; /* corner in the tensor */
    uint64_t size[RFS_MAX_DIMS];
    uint64_t first;              /* number of the first element in the chunk */
    uint64_t step[RFS_MAX_DIMS]; /* elements of the chunk, from one to the next along each axis */
};
/* The place of the elements of a box. */
struct rfs_chunk_place {
    uint32_t file;
    uint64_t at;                   /* where the first is in the file */
    uint64_t stride[RFS_MAX_DIMS]; /* strides in bytes */
    bool strided;                  /* they do not lie row by row */
};
/* Gives where a box is in FILE, by the value of at of its chunk or of a copy. */
void rfs_chunks_place_box(struct rfs_chunks *chunks, const struct rfs_chunk_box *box, uint32_t file,
                          uint64_t at, struct rfs_chunk_place *out);
/*
 * Says whether the elements of a chunk of TYPE and of its copy, with values A and B of at, lie in
 * one order without gaps, so that their bytes can be compared. Gives where both begin.
 */
bool rfs_chunks_are_alike(struct rfs_chunks *chunks, const struct rfs_type *type, uint64_t a,
                          uint64_t b, uint64_t begin[2]);
/* Locates the chunk of a box, and gives where the box is. 0, or -errno with *err filled. */
int rfs_chunks_locate_box(struct rfs_chunks *chunks, const struct rfs_chunk_box *box,
                          struct rfs_chunk_place *out, struct rfs_error *err);

/* A walk over the cells of a grid, in the box of a tensor as it is stored. */
struct rfs_chunk_cells {
    uint32_t ndim;
    uint32_t first[RFS_MAX_DIMS], last[RFS_MAX_DIMS], cell[RFS_MAX_DIMS];
    bool ended;
};

/* A walk over the chunks that a box of a tensor touches. */
struct rfs_chunks_walk {
    const struct rfs_chunks *chunks;
    const struct rfs_chunked_tensor *tensor;
    struct rfs_chunk_cells cells;
    /* The box, the tile and the rest of the chunk at hand, if the tensor was flattened. */
    uint64_t lo[RFS_MAX_DIMS], hi[RFS_MAX_DIMS];
    uint32_t tile_axes;          /* axes of the stored tensor that number tiles; 0: there is one */
    uint64_t side[RFS_MAX_DIMS]; /* sides of a tile */
    uint64_t tile[RFS_MAX_DIMS];
    uint32_t chunk;
    uint64_t begin, next, end; /* numbers of elements in the tile: the chunk's first, … */
};
/* Begins a walk over the box from LO to HI (exclusive, not empty) of a tensor. */
void rfs_chunks_walk_begin(const struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor,
                           const uint64_t *lo, const uint64_t *hi, struct rfs_chunks_walk *walk);
/* Gives the next box, which lies within one chunk; each comes once. False at the end. */
bool rfs_chunks_walk_next(struct rfs_chunks_walk *walk, struct rfs_chunk_box *box);
