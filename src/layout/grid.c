/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and cells of a grid: mixed-radix arithmetic on digits, which go from the outermost in. */
#include "layout/grid.h"

#include "base/order.h"
#include "layout/builder.h"

static uint32_t digit_of(const struct rfs_digit *digit, uint32_t rank)
{
    return rank / digit->stride % digit->extent;
}

void rfs_grid_single(uint32_t ndim, struct rfs_grid *grid)
{
    memset(grid, 0, sizeof *grid);
    grid->ndim = ndim;
    grid->ranks = 1;
    grid->replicas = 1;
    grid->rounds = 1;
    for (uint32_t i = 0; i < ndim && i < RFS_GRID_DIMS; i++)
        grid->pieces[i] = 1;
}

uint64_t rfs_grid_begin(const struct rfs_grid *grid, const uint64_t *whole, uint32_t axis,
                        uint32_t piece)
{
    return axis == 0 && grid->edge != NULL ? grid->edge[piece]
                                           : piece * (whole[axis] / grid->pieces[axis]);
}

uint64_t rfs_grid_length(const struct rfs_grid *grid, const uint64_t *whole, uint32_t axis,
                         uint32_t piece)
{
    return axis == 0 && grid->edge != NULL ? grid->edge[piece + 1] - grid->edge[piece]
                                           : whole[axis] / grid->pieces[axis];
}

uint32_t rfs_grid_piece(const struct rfs_grid *grid, const uint64_t *whole, uint32_t axis,
                        uint64_t at)
{
    if (axis != 0 || grid->edge == NULL)
        return (uint32_t)(at / (whole[axis] / grid->pieces[axis]));
    return (uint32_t)RFS_BISECT(i, grid->pieces[axis] - 1, grid->edge[i + 1] > at);
}

void rfs_grid_slice(const struct rfs_grid *grid, const uint64_t *whole, uint32_t rank,
                    uint64_t *dims)
{
    uint32_t cell[RFS_GRID_DIMS];

    rfs_grid_cell(grid, rank, cell);
    for (uint32_t i = 0; i < grid->ndim; i++)
        dims[i] = rfs_grid_length(grid, whole, i, cell[i]) * (i == 0 ? grid->rounds : 1);
}

void rfs_grid_cell(const struct rfs_grid *grid, uint32_t rank, uint32_t *cell)
{
    for (uint32_t i = 0; i < grid->ndim; i++)
        cell[i] = 0;
    for (uint32_t k = 0; k < grid->n_digits; k++) {
        const struct rfs_digit *digit = &grid->digits[k];
        if (digit->axis >= 0)
            cell[digit->axis] += digit_of(digit, rank) * digit->weight;
    }
}

uint32_t rfs_grid_holder(const struct rfs_grid *grid, const uint32_t *cell, uint32_t template)
{
    uint32_t rank = 0;

    for (uint32_t k = 0; k < grid->n_digits; k++) {
        const struct rfs_digit *digit = &grid->digits[k];
        const uint32_t value = digit->axis >= 0 ? cell[digit->axis] / digit->weight % digit->extent
                                                : digit_of(digit, template);
        rank += value * digit->stride;
    }
    return rank;
}

uint32_t rfs_grid_replica(const struct rfs_grid *grid, uint32_t rank, uint32_t k)
{
    uint32_t found = 0;

    /* The innermost free digit counts fastest, so that k ascends with the rank. */
    for (uint32_t i = grid->n_digits; i-- > 0;) {
        const struct rfs_digit *digit = &grid->digits[i];
        uint32_t value = digit_of(digit, rank);
        if (digit->axis < 0) {
            value = k % digit->extent;
            k /= digit->extent;
        }
        found += value * digit->stride;
    }
    return found;
}

uint32_t rfs_layout_slice(const struct rfs_layout *layout, uint32_t rank)
{
    const uint32_t used = rfs_layout_used(layout);
    uint32_t part[RFS_MAX_DEVICE_AXES];
    uint32_t number = 0;
    uint32_t weight = 1;

    rfs_layout_opt_parts(layout, layout->opt_size, part);
    for (uint32_t p = layout->n_dev; p-- > 0;) {
        const uint32_t coordinate = rank % layout->dev[p];
        const uint32_t cuts = used >> p & 1 ? layout->dev[p] : part[p];
        number += coordinate % cuts * weight;
        weight *= cuts;
        rank /= layout->dev[p];
    }
    return number;
}
