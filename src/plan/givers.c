/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which source rank gives a cell or a copied parameter.
 *
 * Without a survey every rank that has a file counts as having the parameter: planning proves that of the
 * ranks it takes. So a survey that is made later, for another destination rank, changes no answer.
 */
#include "plan/internal.h"

uint32_t rfs_plan_base(const struct rfs_planner *planner, uint32_t src_stage)
{
    return planner->scale.src_base + src_stage * planner->scale.src_devices;
}

bool rfs_plan_has(const struct wanting *wanting, uint32_t rank)
{
    if (wanting->survey)
        return rfs_survey_has(wanting->survey, wanting->name, rank);
    return rfs_catalog_has(wanting->planner->config.catalog, wanting->base + rank);
}

bool rfs_plan_holds(const void *piece, uint32_t rank)
{
    const struct piece *want = piece;

    if (want->grid)
        return rfs_grid_holder(want->grid, want->cell, rank) == rank;
    return !want->layout || rfs_layout_slice(want->layout, rank) == want->slice;
}

uint32_t rfs_plan_first(const struct wanting *wanting, const struct piece *piece)
{
    return piece->grid ? rfs_grid_holder(piece->grid, piece->cell, wanting->like) : wanting->like;
}

/* The lowest rank that holds it and has a file; its replicas are few, where the grid tells them. */
static uint32_t lowest_file(const struct wanting *wanting, const struct piece *piece)
{
    const uint32_t first = rfs_plan_first(wanting, piece);
    const uint32_t devices = wanting->planner->scale.src_devices;

    for (uint32_t k = 0; piece->grid && k < piece->grid->replicas; k++) {
        const uint32_t rank = rfs_grid_replica(piece->grid, first, k);
        if (rfs_plan_has(wanting, rank))
            return rank;
    }
    for (uint32_t rank = 0; !piece->grid && rank < devices; rank++)
        if (rfs_plan_has(wanting, rank) && rfs_plan_holds(piece, rank))
            return rank;
    return RFS_NO_RANK;
}

uint32_t rfs_plan_giver(const struct wanting *wanting, const struct piece *piece)
{
    uint32_t rank = rfs_plan_first(wanting, piece);

    if (!rfs_plan_has(wanting, rank))
        rank = wanting->survey
                   ? rfs_survey_lowest(wanting->survey, wanting->name, rfs_plan_holds, piece)
                   : lowest_file(wanting, piece);
    return rank == RFS_NO_RANK ? RFS_NO_RANK : wanting->base + rank;
}
