/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is kept for long, with a limit: its size follows the input, so an input that needs
 * more is refused. Not thread-safe.
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
/* That error. */
int rfs_budget_fail(const struct rfs_budget *budget, const char *file, struct rfs_error *err);
