/* SPDX-License-Identifier: Apache-2.0 */
/* How many elements several boxes have together, each counted once. */
#pragma once

#include "base/vec.h"
#include "plan/trace.h"

struct rfs_box_list {
    struct rfs_box *data;
    size_t n, cap;
};

/*
 * Of boxes of NDIM axes, which may overlap in any way, and are left in another order. *VOLUME is at
 * most the elements of the tensor that they are boxes of. O(n log n) a level for the cells of a
 * grid, however often each comes; n² at worst. False when out of memory.
 */
bool rfs_chunks_volume(struct rfs_box_list *boxes, uint32_t ndim, uint64_t *volume);
