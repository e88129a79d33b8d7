/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "layout/strategy.h"

/*
 * The XXH3-128 of a strategy's contents, without its file name: strategies with equal digests are
 * the same. O(parameters and their stages). 0, or -1 when out of memory.
 */
int rfs_strategy_digest(const struct rfs_strategy *strategy, uint64_t digest[2]);
