/* SPDX-License-Identifier: Apache-2.0 */
/* Where a part of what conversion rules make lies in the tensors of either side. */
#pragma once

#include "tool/explain/explained.h"

/*
 * Entries along an axis: FIRST + Σ i_k * step[k] for all i_k below count[k]; the smallest step
 * first, counts above 1.
 */
struct rfs_made_axis {
    uint32_t n;
    uint64_t first;
    uint64_t count[RFS_RULES_DIGITS];
    uint64_t step[RFS_RULES_DIGITS];
};

/* Those of a part along axis NUMBER of the made tensor (RFS_MADE) or of the source's. */
void rfs_made_axis(const struct rfs_explain *explain, const struct rfs_explained_part *part,
                   int side, uint32_t number, struct rfs_made_axis *axis);
/* As a numpy index; rows in groups are "0:64 and 2 more, each 96 further". SIZE: of the axis. */
void rfs_made_put_axis(FILE *out, const struct rfs_made_axis *axis, uint64_t size);

/* The source tensor of a part. */
const struct rfs_target *rfs_made_source(const struct rfs_explain *explain,
                                         const struct rfs_explained_part *part);
