/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups the parameters of a strategy by stage and layout, and finds each device's slice of them.
 *
 * Cost: 4 bytes for each parameter and stage, and a grid for each distinct layout of a stage.
 */
#pragma once

#include "base/vec.h"
#include "layout/grid.h"

/* Parameters of one stage that have one layout. */
struct rfs_devices_group {
    uint32_t stage;
    const struct rfs_layout *layout; /* the strategy's */
    size_t first, n;                 /* range of rfs_devices.params */
    struct rfs_grid grid;
    bool known; /* the strategy or the user gives the dims; else only proportions */
    uint64_t whole[RFS_GRID_DIMS]; /* dims of the whole tensor */
};

struct rfs_devices {
    struct rfs_devices_group *data; /* sorted by stage, then by their first parameters */
    size_t n, cap;
    uint32_t *params; /* owned; positions in the strategy */
};

/* What to group. */
struct rfs_devices_use {
    const struct rfs_strategy *strategy;
    const char *param;     /* only this one; NULL: all */
    const uint64_t *shape; /* [n_shape] dims of param; or NULL */
    uint32_t n_shape;
};

/*
 * Makes the groups. 0, -ENOMEM, -ENOENT for a param that the strategy does not have, or the
 * result of rfs_grid_resolve, with *err filled.
 */
int rfs_devices_make(const struct rfs_devices_use *use, struct rfs_devices *out,
                     struct rfs_error *err);
void rfs_devices_free(struct rfs_devices *groups);

/*
 * Prints the slice of a local rank: "[0:256, :]", or where dims are not known in fractions of the
 * axes, "[0:1/4, :]". Cells of a field slicing are joined by " + ".
 */
void rfs_devices_put_slice(FILE *out, const struct rfs_devices_group *group, uint32_t rank);
/*
 * Returns which slice a local rank has: a number below grid.ranks / grid.replicas, row-major over
 * the cells.
 */
uint32_t rfs_devices_slice(const struct rfs_devices_group *group, uint32_t rank);
