/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of a strategy by stage and layout, and each device's slice of them.
 *
 * Cost: 4 bytes for each parameter and stage, and a grid for each distinct layout of a stage.
 */
#pragma once

#include "base/vec.h"
#include "layout/grid.h"

/* Parameters of one stage that have one layout. */
struct rfs_group {
    uint32_t stage;
    const struct rfs_layout *layout; /* the strategy's */
    size_t first, n;                 /* in rfs_groups.params */
    struct rfs_grid grid;
    /*
     * The tensor's dims, where the strategy or the user gives them; else only the proportions are
     * known.
     */
    bool known;
    uint64_t whole[RFS_GRID_DIMS];
};

struct rfs_groups {
    struct rfs_group *data; /* by stage, then in the order of their first parameters */
    size_t n, cap;
    uint32_t *params; /* owned; positions in the strategy */
};

/* The request. */
struct rfs_groups_use {
    const struct rfs_strategy *strategy;
    const char *param;     /* one alone; or NULL */
    const uint64_t *shape; /* its dims; or NULL */
    uint32_t n_shape;
};

/*
 * 0, -ENOMEM, -ENOENT for a param that the strategy does not have, or the result of
 * rfs_grid_resolve, with *err filled.
 */
int rfs_groups_make(const struct rfs_groups_use *use, struct rfs_groups *out,
                    struct rfs_error *err);
void rfs_groups_free(struct rfs_groups *groups);

/*
 * The slice of a local rank: "[0:256, :]", or where dims are not known in fractions of the axes,
 * "[0:1/4, :]". Cells of a field slicing are joined by " + ".
 */
void rfs_put_slice(FILE *out, const struct rfs_group *group, uint32_t rank);
/* Which slice it is, a number below grid.ranks / grid.replicas, row-major over the cells. */
uint32_t rfs_group_slice(const struct rfs_group *group, uint32_t rank);
