/* SPDX-License-Identifier: Apache-2.0 */
/* Two strategies, and which ranks of one need which of the other. */
#pragma once

#include "base/error.h"
#include "base/store.h"
#include "layout/strategy.h"

struct rfs_needed;
struct rfs_store;

/* Two strategies, and which ranks of one need which of the other (plan/needed.h). */
struct rfs_inspect_ranks {
    uint32_t sources, destinations; /* numbers of ranks */
    struct rfs_strategy *src, *dst; /* this and the next are the view's; NULL: unsharded */
    struct rfs_needed *needed;
};

/*
 * Reads the strategies that SRC and DST name (rfs_plan_read_strategy); a side that is NULL is one
 * whole checkpoint. 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_ranks_open(struct rfs_store *store, const char *src, const char *dst,
                           struct rfs_inspect_ranks **out, struct rfs_error *err);
/* Frees them; NULL is allowed. */
void rfs_inspect_ranks_close(struct rfs_inspect_ranks *ranks);
/*
 * Sets wanted[R] for each source rank R that destination rank RANK needs; clears the others. 0 or
 * -errno with *err filled. One thread at a time.
 */
int rfs_inspect_ranks_needed(struct rfs_inspect_ranks *ranks, uint32_t rank, unsigned char *wanted,
                             struct rfs_error *err);
