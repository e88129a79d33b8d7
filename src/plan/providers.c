/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which source rank gives a cell or a copied parameter.
 *
 * Without a presence map every rank that has a file counts as having the parameter: planning proves
 * that of the ranks it takes. So a presence map that is made later, for another destination rank,
 * changes no answer.
 */
#include "plan/internal.h"

uint32_t rfs_plan_base(const struct rfs_planner *planner, uint32_t src_stage)
{
    return planner->scale.src_base + src_stage * planner->scale.src_devices;
}

bool rfs_plan_has(const struct provider_query *provider_query, uint32_t rank)
{
    if (provider_query->presence)
        return rfs_presence_has(provider_query->presence, provider_query->name, rank);
    return rfs_catalog_has(provider_query->planner->config.catalog, provider_query->base + rank);
}

bool rfs_plan_holds(const void *ctx, uint32_t rank)
{
    const struct piece *piece = ctx;

    if (piece->grid)
        return rfs_grid_holder(piece->grid, piece->cell, rank) == rank;
    return !piece->layout || rfs_layout_slice(piece->layout, rank) == piece->slice;
}

uint32_t rfs_plan_first(const struct provider_query *provider_query, const struct piece *piece)
{
    return piece->grid ? rfs_grid_holder(piece->grid, piece->cell, provider_query->template)
                       : provider_query->template;
}

/* The lowest rank that holds it and has a file; its replicas are few, where the grid says so. */
static uint32_t lowest_file(const struct provider_query *provider_query, const struct piece *piece)
{
    const uint32_t first = rfs_plan_first(provider_query, piece);
    const uint32_t devices = provider_query->planner->scale.src_devices;

    for (uint32_t k = 0; piece->grid && k < piece->grid->replicas; k++) {
        const uint32_t rank = rfs_grid_replica(piece->grid, first, k);
        if (rfs_plan_has(provider_query, rank))
            return rank;
    }
    for (uint32_t rank = 0; !piece->grid && rank < devices; rank++)
        if (rfs_plan_has(provider_query, rank) && rfs_plan_holds(piece, rank))
            return rank;
    return RFS_NO_RANK;
}

uint32_t rfs_plan_provider(const struct provider_query *provider_query, const struct piece *piece)
{
    uint32_t rank = rfs_plan_first(provider_query, piece);

    if (!rfs_plan_has(provider_query, rank))
        rank = provider_query->presence
                   ? rfs_presence_lowest(provider_query->presence, provider_query->name,
                                         rfs_plan_holds, piece)
                   : lowest_file(provider_query, piece);
    return rank == RFS_NO_RANK ? RFS_NO_RANK : provider_query->base + rank;
}
