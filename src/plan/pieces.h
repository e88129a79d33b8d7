/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk of the pieces of a target: one for each box of a destination rank and each cell, chunk
 * or value of the source that it touches. A slice collects their blocks; a trace (trace.h), their
 * places, too.
 *
 * Under conversion rules (by_rules.h) the walk has two steps: links lead from a box of the
 * destination to elements of whole source tensors, and an unsharded plan of the source says where
 * those are stored.
 *
 * Cost: time in the cells or chunks that the boxes touch, and in the links; a piece lives during
 * the call only.
 */
#pragma once

#include "formats/chunks/chunks.h"
#include "plan/geometry.h"
#include "plan/planner.h"
#include "plan/replicas.h"
#include "rules/links.h"

/* The place where a source has a box of one of its tensors. */
struct rfs_piece_source {
    uint32_t rank;  /* the source rank that gives it, numbered over all stages; of a checkpoint that
                      describes itself, the number of the file */
    uint32_t type;  /* of that rank's slice, or of the chunk; id in the catalogue's types */
    uint32_t chunk; /* number of the chunk; RFS_NO_ID: the source is not chunked */
    uint32_t file;  /* id in the catalogue's files */
    bool other;     /* it is not the place of copy 0 */
    uint32_t odd;   /* a rank that has another type there, and is passed over; or RFS_NO_RANK */
    struct rfs_plan_piece asked; /* what the rank was asked for */
    struct rfs_content content;
    struct rfs_geometry_stored box;
};

/* A piece of a target: what one box of the destination takes from one place. */
struct rfs_piece {
    const struct rfs_piece_source *source;
    const struct rfs_cells *cells;     /* the destination's box; NULL: the value is copied whole */
    const struct rfs_rules_link *link; /* NULL: no rules made the target */
    const struct rfs_rules_span *span; /* the link's digits that the piece has */
    struct rfs_block block;
};

/* Takes a piece. A result that is not 0, an -errno, ends the walk. */
typedef int rfs_piece_fn(void *ctx, const struct rfs_piece *piece);

/* A box of a target, in elements along each axis; not empty. */
struct rfs_plan_part {
    const uint64_t *lo, *hi;
};
/*
 * Calls EACH for the pieces of copy COPY (planner.h) of a target of a planned rank, in the order of
 * boxes, of links and of the source. With a PART, which may be NULL, the pieces are those of that
 * box alone, and blocks count from its corner. A piece that this copy lacks is that of copy 0;
 * there is no other copy under rules. A target without bytes has no pieces. 0, what EACH returned,
 * or the error of rebuilding an index that was dropped (-ESTALE: one was changed).
 */
int rfs_plan_pieces(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                    const struct rfs_plan_part *part, uint32_t copy, rfs_piece_fn *each, void *ctx);

/* Returns the tensor of a target in a source of chunks, or NULL. */
const struct rfs_chunked_tensor *rfs_plan_chunked_tensor(const struct rfs_planner *planner,
                                                         const struct rfs_target *target);

/* Takes a place. A result that is not 0, an -errno, ends the walk. */
typedef int rfs_piece_source_fn(void *ctx, const struct rfs_piece_source *source);
/*
 * Calls EACH for the chunks that a target of a local destination rank touches; several times for
 * one that several boxes touch. Only the member chunk is set: no chunk is located. 0, what EACH
 * returned, or -errno.
 */
int rfs_plan_chunks(struct rfs_planner *planner, uint32_t local, const struct rfs_target *target,
                    rfs_piece_source_fn *each, void *ctx);
