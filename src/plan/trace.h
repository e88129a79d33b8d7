/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An explained slice: what rfs_planner_slice finds, with the other holders of each piece and its
 * place in the tensor. For diagnostics; readers use slices.
 *
 * Cost: about a kilobyte for each source cell that the slice's box touches.
 */
#pragma once

#include "plan/pieces.h"

struct rfs_piece_trace {
    uint32_t rank; /* the source rank that gives it, numbered over all stages */
    /* the rank that MindSpore takes it from: another one where that does not have it */
    uint32_t first;
    struct rfs_box whole;  /* in the whole tensor */
    struct rfs_box source; /* in the source rank's slice */
    struct rfs_box target; /* in the destination's slice */
    uint32_t type;         /* of the source rank's slice; id in the catalogue's types */
    /* bit I: all elements along its axis I are one element, as in torch's expand */
    uint32_t repeated;
    struct rfs_block block; /* the bytes */
    /* NULL: no rules made the target. Else only rank, block and the link's digits are set. */
    const struct rfs_rules_link *link;
    struct rfs_rules_span span;
};

struct rfs_trace {
    const struct rfs_geometry *geometry; /* NULL: copied unsliced, then there are no boxes */
    const struct rfs_layout *src, *dst;  /* NULL: not in that strategy, or there is none */
    uint32_t stage;                      /* of the source */
    uint32_t base, devices; /* global rank of the stage's rank 0; number of its ranks */
    bool differs;           /* the stage's files list different parameters */
    size_t n, cap;
    struct rfs_piece_trace *pieces; /* owned; ascending by block.dst, or in the order of links */
};

/*
 * Traces a target of a planned rank, or a PART of it (pieces.h; NULL: all). *out is
 * zero-initialised or one to use again; the caller frees it by rfs_trace_free. 0, or an error of
 * rfs_planner_slice.
 */
int rfs_planner_trace(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                      const struct rfs_plan_part *part, struct rfs_trace *out);
void rfs_trace_free(struct rfs_trace *trace);
/*
 * Says whether the traces of all targets with this one's geometry and stage, in one parameter list,
 * differ in the offsets in files only. O(ranks of the stage).
 */
bool rfs_trace_is_shared(const struct rfs_planner *planner, const struct rfs_target *target);

enum rfs_holding {
    RFS_HOLDS_NOT,  /* another slice */
    RFS_HOLDS,      /* it could give the piece */
    RFS_HOLDS_LOST, /* it held the piece, and has no file */
    RFS_HOLDS_BARE, /* it holds the piece, and its file leaves the parameter out */
};
/*
 * Says whether a source rank of the trace's stage, numbered over all stages, holds a piece. O(log
 * ranks).
 */
enum rfs_holding rfs_trace_holding(const struct rfs_planner *planner,
                                   const struct rfs_target *target, const struct rfs_trace *trace,
                                   const struct rfs_piece_trace *piece, uint32_t rank);
