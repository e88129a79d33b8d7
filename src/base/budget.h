/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory whose size follows the input.
 *
 * A budget is for memory that an object keeps: an input that needs more than its limit is refused.
 * Not thread-safe.
 *
 * A share is for memory that reading takes for a moment, such as that of headers and pickles. All
 * threads share it: when many ranks are indexed at once, no more of their headers are in memory
 * than fit RFS_BUDGET_SHARE_BYTES, or one that is larger by itself. Thread-safe.
 */
#pragma once

#include "base/error.h"

struct rfs_budget {
    uint64_t used;
    uint64_t most; /* bytes; UINT64_MAX: any */
};

static inline uint64_t rfs_budget_rest(const struct rfs_budget *budget)
{
    return budget->most - budget->used;
}

/* Takes BYTES, which FILE makes necessary: 0, or -EFBIG with *err filled. */
int rfs_budget_take(struct rfs_budget *budget, uint64_t bytes, const char *file,
                    struct rfs_error *err);
/* Reports that FILE needs more than the budget has. -EFBIG. */
int rfs_budget_fail(const struct rfs_budget *budget, const char *file, struct rfs_error *err);

#define RFS_BUDGET_SHARE_BYTES ((size_t)32 << 20)

/*
 * Waits until there is room for BYTES, and notes them in *share, which was 0. The caller must hold
 * no lock. 0, or -EINTR when the caller's work was cancelled meanwhile (cancel.h).
 */
int rfs_budget_share_take(size_t *share, size_t bytes);
/* Gives back the share, which may be 0. */
void rfs_budget_share_give(size_t *share);

/* Declares a share that ends with the scope: RFS_BUDGET_SHARE share = 0; */
#define RFS_BUDGET_SHARE __attribute__((cleanup(rfs_budget_share_give))) size_t
