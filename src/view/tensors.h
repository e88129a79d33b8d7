/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of tensors, and where the bytes of each come from: those of a shown file, of a destination
 * rank, of a whole checkpoint, however it is stored. Everything above the plan that needs tensors
 * takes them from such a list.
 *
 * Cost: none beside the plan. All is owned by the view. Thread-safe, as planners are.
 */
#pragma once

#include "plan/pieces.h"

struct rfs_tensors {
    struct rfs_catalog *catalog; /* names and types are ids in its tables */
    struct rfs_planner *planner; /* the planner of rank RANK */
    uint32_t rank;
    const struct rfs_storages *storages; /* tensors in objects of torch.save; or NULL */
    const struct rfs_params *params;     /* NULL: targets are storages alone */
    const struct rfs_rank_plan *plan;
};

/* Returns the number of tensors or storages of a list. */
static inline size_t rfs_tensors_count(const struct rfs_tensors *tensors)
{
    return tensors->storages ? tensors->storages->items.n : tensors->params->n;
}

/* Returns the name that tensor I is shown by. */
static inline const char *rfs_tensors_name(const struct rfs_tensors *tensors, size_t i)
{
    return rfs_catalog_name(tensors->catalog, tensors->params->targets[i].shown_name);
}

/* Returns the dtype and the shape that tensor I is shown with. */
static inline const struct rfs_type *rfs_tensors_type(const struct rfs_tensors *tensors, size_t i)
{
    return rfs_catalog_type(tensors->catalog, tensors->params->targets[i].shown_type);
}

/* Makes the slice of tensor or storage I; costs and returns what rfs_planner_slice does. */
int rfs_tensors_slice(const struct rfs_tensors *tensors, uint32_t i, struct rfs_slice *slice);
/* Makes the slice of a box of tensor I, as rfs_planner_box does. */
int rfs_tensors_box(const struct rfs_tensors *tensors, uint32_t i, const uint64_t *lo,
                    const uint64_t *hi, struct rfs_slice *slice);
