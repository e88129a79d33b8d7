/* SPDX-License-Identifier: Apache-2.0 */
#include "view/tensors.h"

int rfs_tensors_slice(const struct rfs_tensors *tensors, uint32_t i, struct rfs_slice *slice)
{
    return tensors->storages ? rfs_slice_storage(tensors->storages, i, slice)
                             : rfs_planner_slice(tensors->planner, tensors->rank,
                                                 &tensors->params->targets[i], slice);
}

int rfs_tensors_box(const struct rfs_tensors *tensors, uint32_t i, const uint64_t *lo,
                    const uint64_t *hi, struct rfs_slice *slice)
{
    return rfs_planner_box(tensors->planner, tensors->rank, &tensors->params->targets[i], lo, hi,
                           slice);
}
