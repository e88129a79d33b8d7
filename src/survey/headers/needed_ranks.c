/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/headers/needed_ranks.h"

#include "base/cleanup.h"
#include "plan/needed.h"
#include "plan/strategy_files.h"

void rfs_inspect_ranks_close(struct rfs_inspect_ranks *ranks)
{
    if (!ranks)
        return;
    rfs_needed_free(ranks->needed);
    rfs_strategy_free(ranks->src);
    rfs_strategy_free(ranks->dst);
    free(ranks);
}

RFS_CLEANUP_OF(close_ranks, struct rfs_inspect_ranks *, rfs_inspect_ranks_close)

int rfs_inspect_ranks_open(struct rfs_store *store, const char *src, const char *dst,
                           struct rfs_inspect_ranks **out, struct rfs_error *err)
{
    RFS_CLEANUP(close_ranks) struct rfs_inspect_ranks *ranks = calloc(1, sizeof *ranks);

    *out = NULL;
    if (!ranks)
        return rfs_fail_memory(err);
    const int rc = (src ? rfs_plan_read_strategy(store, src, &ranks->src, err) : 0)
                       ?: (dst ? rfs_plan_read_strategy(store, dst, &ranks->dst, err) : 0)
                       ?: rfs_needed_open(ranks->src, ranks->dst, &ranks->needed, err);
    if (rc)
        return rc;
    ranks->sources = rfs_needed_sources(ranks->needed);
    ranks->destinations = rfs_needed_ranks(ranks->needed);
    *out = RFS_STEAL(ranks);
    return 0;
}

int rfs_inspect_ranks_needed(struct rfs_inspect_ranks *ranks, uint32_t rank, unsigned char *wanted,
                             struct rfs_error *err)
{
    return rfs_needed_by(ranks->needed, rank, wanted, err);
}
