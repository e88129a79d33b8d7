/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An explained slice: as rfs_planner_slice, with the other holders of each piece and its place in
 * the tensor. For diagnostics; readers use slices.
 *
 * Cost: about a kilobyte for each source cell that the slice's box touches.
 */
#pragma once

#include "plan/geometry.h"
#include "plan/planner.h"

/* A box of elements. */
struct rfs_box {
    uint64_t at[RFS_MAX_DIMS];
    uint64_t len[RFS_MAX_DIMS];
};

struct rfs_piece_trace {
    uint32_t rank; /* the source rank that gives it, of all stages */
    /* the one that MindSpore takes it from: another where that one does not have it */
    uint32_t first;
    struct rfs_box whole;  /* in the whole tensor */
    struct rfs_box source; /* in the rank's slice */
    struct rfs_box target; /* in the destination's slice */
    uint32_t type;         /* of the rank's slice; id in the catalogue's types */
    /* bit I: all elements along its axis I are one element, as in torch's expand */
    uint32_t repeated;
    struct rfs_block block; /* the bytes */
};

struct rfs_trace {
    const struct rfs_geometry *geometry; /* NULL: copied unsliced, then there are no boxes */
    const struct rfs_layout *src, *dst;  /* NULL: not in that strategy, or there is none */
    uint32_t stage;                      /* of the source */
    uint32_t base, devices;              /* the global rank of its rank 0, and how many it has */
    bool differs;                        /* its files list different parameters */
    size_t n, cap;
    struct rfs_piece_trace *pieces; /* owned; ascending by block.dst */
};

/*
 * TARGET is one of the rank's parameter list, which is planned. *out is zero-initialised or one to
 * use again; the caller frees it by rfs_trace_free. 0 or as rfs_planner_slice.
 */
int rfs_planner_trace(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                      struct rfs_trace *out);
void rfs_trace_free(struct rfs_trace *trace);
/* A piece more, all zeros. NULL when out of memory. */
struct rfs_piece_trace *rfs_trace_add(struct rfs_trace *trace);
/*
 * Whether the traces of all targets with this one's geometry and stage, in one parameter list, have
 * the same pieces but for the offsets in files. O(ranks of the stage).
 */
bool rfs_trace_is_shared(const struct rfs_planner *planner, const struct rfs_target *target);

enum rfs_holding {
    RFS_HOLDS_NOT,  /* another slice */
    RFS_HOLDS,      /* it could give the same */
    RFS_HOLDS_LOST, /* it held the same, and has no file */
    RFS_HOLDS_BARE, /* it has a file, which leaves the parameter out */
};
/*
 * Whether a source rank of the trace's stage, numbered over all stages, holds a piece. O(log
 * ranks).
 */
enum rfs_holding rfs_trace_holding(const struct rfs_planner *planner,
                                   const struct rfs_target *target, const struct rfs_trace *trace,
                                   const struct rfs_piece_trace *piece, uint32_t rank);

/*
 * The boxes, in the whole tensor, of a local rank of the grid: GRID->rounds of them, number K first
 * from 0.
 */
void rfs_trace_box(const struct rfs_grid *grid, const uint64_t *whole, uint32_t rank, uint32_t k,
                   struct rfs_box *box);
