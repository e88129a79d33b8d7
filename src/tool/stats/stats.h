/* SPDX-License-Identifier: Apache-2.0 */
/* The results of `reshard stats`, and how they are shown. */
#pragma once

#include "tool/common/whole.h"
#include "tool/stats/moments.h"

/* MOMENTS [whole->n], of those that have numbers. Prints to the standard output. */
void rfs_stats_write(const struct rfs_whole *whole, const struct rfs_moments *moments, bool json);
