/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RFS_LAYOUT_DIGEST_H
#define RFS_LAYOUT_DIGEST_H

#include "layout/strategy.h"

/*
 * The XXH3-128 of all that a strategy says, whatever its file was called: strategies with equal ones are the
 * same. O(parameters and their stages). 0, or -1 when out of memory.
 */
int rfs_strategy_digest(const struct rfs_strategy *strategy, uint64_t digest[2]);

#endif
