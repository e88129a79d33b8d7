/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors that a file is made of. */
#pragma once

#include "hfai/storages.h"
#include "plan/planner.h"

/* Where their bytes come from: all is the view's. */
struct rfs_tensors {
    struct rfs_planner *planner; /* the planner of rank RANK; NULL with storages */
    uint32_t rank;
    const struct rfs_storages *storages;
    const struct rfs_params *params; /* NULL: a file of torch.save, whose targets are storages */
    const struct rfs_rank_plan *plan;
};

/* Where the bytes of a target come from; as rfs_planner_slice. */
static inline int rfs_tensors_slice(const struct rfs_tensors *tensors, uint32_t target,
                                    struct rfs_slice *slice)
{
    return tensors->storages ? rfs_storages_slice(tensors->storages, target, slice)
                             : rfs_planner_slice(tensors->planner, tensors->rank,
                                                 &tensors->params->targets[target], slice);
}
