/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner of an open view and its inputs, for reshard explain. All results are owned by the
 * view, and live until it is closed.
 */
#pragma once

#include "base/pool.h"
#include "hfai/hfai.h"
#include "plan/planner.h"
#include "plan/trace.h"
#include "reshard.h"

struct rfs_view_plans {
    struct rfs_planner *planner;              /* NULL with hfai's parts */
    struct rfs_notes *notes;                  /* the planner's */
    const struct rfs_hfai *hfai;              /* hfai's parts, or NULL */
    const struct rfs_hfai_division *division; /* division among the parts shown, or NULL */
    struct rfs_catalog *catalog;
    const struct rfs_by_rules *by_rules; /* NULL: no conversion rules */
    const struct rfs_catalog *stored; /* catalogue of the source's files; without rules CATALOG */
    struct rfs_pool *pool;
    const struct rfs_strategy *src, *dst; /* NULL: unsharded */
    uint32_t n_ranks;                     /* ranks of the destination */
    bool keyed; /* sources are decrypted: offsets are in the plain content */
};

/*
 * Gives the plans of a view. Returns 0, or -EINVAL with *err filled as a mistake of usage, for a
 * view of several saves.
 */
int rfs_view_plans(struct reshard_view *view, struct rfs_view_plans *out, struct rfs_error *err);

/* A byte of a shown file. */
struct rfs_view_location {
    const char *folder, *name; /* FOLDER is NULL for hfai's parts */
    uint64_t offset;
};
/*
 * Finds the shown file that holds a target of a planned rank, and where its bytes begin there.
 * Returns 1; 0 where ranks have no file of their own, or the target no bytes; or -errno.
 */
int rfs_view_shown_at(struct reshard_view *view, uint32_t rank, uint32_t target,
                      struct rfs_view_location *out);
/*
 * Finds where one of hfai's parts holds a tensor, by the N pieces of the tensor in it. Returns 1; 0
 * where it has no bytes, or they do not lie there in a row; or -errno.
 */
int rfs_view_stored_at(struct reshard_view *set, uint32_t part,
                       const struct rfs_piece_trace *pieces, size_t n,
                       struct rfs_view_location *out);
