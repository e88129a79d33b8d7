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
    struct rfs_planner *planner;              /* NULL: of hfai's parts */
    const struct rfs_hfai *hfai;              /* those; else NULL, as its division among the */
    const struct rfs_hfai_division *division; /* parts shown */
    struct rfs_catalog *catalog;
    const struct rfs_by_rules *converted; /* NULL: no conversion rules */
    const struct rfs_catalog *stored;     /* of the source's files; else as catalog */
    struct rfs_pool *pool;
    const struct rfs_strategy *src, *dst; /* NULL: unsharded */
    uint32_t n_ranks;                     /* of the destination */
    bool keyed; /* sources are decrypted: offsets are in the plain content */
};

/* 0, or -EINVAL with *err filled as a mistake of usage, for a view of several saves. */
int rfs_view_plans(struct reshard_view *view, struct rfs_view_plans *out, struct rfs_error *err);

/*
 * The shown file that holds a target of a planned rank, and where its bytes begin there. 1; 0 where
 * ranks have no file of their own, or the target no bytes; or -errno.
 */
struct rfs_shown_at {
    const char *folder, *name;
    uint64_t offset;
};
int rfs_view_shown_at(struct reshard_view *view, uint32_t rank, uint32_t target,
                      struct rfs_shown_at *out);
/*
 * The same of one of hfai's parts, by the N pieces of a tensor in it. 0 also where its bytes do not
 * lie there in a row. FOLDER is NULL.
 */
int rfs_view_stored_at(struct reshard_view *set, uint32_t part,
                       const struct rfs_piece_trace *pieces, size_t n, struct rfs_shown_at *out);
