/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts, by the definition: a rank's coordinates are its row-major index in the device matrix. Kept
 * apart from the layout room, so that the examples do not share its mistakes.
 */
#include "tool/example/network.h"

/* The position in dev of the device axis that cuts tensor axis AXIS, or -1. */
static int dev_axis(const struct rfs_cut *cut, uint32_t axis)
{
    return cut->map[axis] < 0 ? -1 : (int)cut->n_dev - 1 - cut->map[axis];
}

static bool is_repeated(const struct rfs_cut *cut, uint32_t ndim, uint32_t dev)
{
    for (uint32_t axis = 0; axis < ndim; axis++)
        if (dev_axis(cut, axis) == (int)dev)
            return false;
    return true;
}

static void coordinates(const struct rfs_cut *cut, uint32_t rank, uint32_t *at)
{
    for (uint32_t i = cut->n_dev; i-- > 0;) {
        at[i] = rank % cut->dev[i];
        rank /= cut->dev[i];
    }
}

void rfs_cut_shard(const struct rfs_cut *cut, uint32_t ndim, uint32_t *size, uint32_t *step)
{
    *size = *step = 0;
    if (!cut->opt)
        return;
    uint32_t stride = 1;
    uint32_t pieces = 1;
    for (uint32_t i = cut->n_dev; i-- > 0; stride *= cut->dev[i]) {
        if (!is_repeated(cut, ndim, i) || cut->dev[i] == 1)
            continue;
        if (*step == 0)
            *step = stride;
        pieces *= cut->dev[i];
    }
    if (pieces > 1)
        *size = pieces;
}

void rfs_cut_pieces(const struct rfs_cut *cut, uint32_t ndim, uint32_t *pieces)
{
    for (uint32_t axis = 0; axis < ndim; axis++) {
        const int dev = dev_axis(cut, axis);
        pieces[axis] = dev < 0 ? 1 : cut->dev[dev];
    }
    uint32_t size;
    uint32_t step;
    rfs_cut_shard(cut, ndim, &size, &step);
    if (size > 1)
        pieces[0] *= size;
}

void rfs_cut_cell(const struct rfs_cut *cut, uint32_t ndim, uint32_t rank, uint32_t *cell)
{
    uint32_t at[RFS_NET_AXES];
    coordinates(cut, rank, at);
    for (uint32_t axis = 0; axis < ndim; axis++) {
        const int dev = dev_axis(cut, axis);
        cell[axis] = dev < 0 ? 0 : at[dev];
    }
    if (!cut->opt || ndim == 0)
        return;
    for (uint32_t i = 0; i < cut->n_dev; i++)
        if (is_repeated(cut, ndim, i))
            cell[0] = cell[0] * cut->dev[i] + at[i];
}
