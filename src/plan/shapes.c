/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the strategies are those of the source's network, by the headers of one rank of each
 * stage: their tensors have names that a strategy knows, and shapes that both strategies divide.
 *
 * This is a quick look, so that a mount is refused before it answers. One rank may keep less than
 * the others (remove_redundancy). So a suspicion is proved by planning a rank, and the error is
 * that of the plan. Files that are missing or damaged concern the ranks that need them.
 */
#include "plan/internal.h"

#include "base/cleanup.h"

#define STAGES_MOST 64 /* of the destination, so that strategies of very many cost no more */

/* Whether the tensors that stage S gives can be cut. */
static bool is_divided(struct planning *planning, uint32_t s)
{
    struct rfs_planner *planner = planning->planner;
    struct rfs_catalog *catalog = planner->config.catalog;
    const struct rfs_index *lead = planning->stages[s].lead_index;

    for (size_t i = 0; i < lead->n; i++) {
        const uint32_t name = lead->entries[i].name;
        struct origin *origin = &planning->origins[name];
        const struct rfs_type *type = rfs_catalog_type(catalog, lead->entries[i].type);
        const struct rfs_role role = rfs_plan_role(planner, name, s, planning->stage);

        if (origin->stage == s && role.shown && type->kind == RFS_TENSOR && type->bytes > 0 &&
            rfs_plan_is_cut(&role, type) &&
            rfs_plan_geometry(planner, &role, origin->type, name, &origin->geometry, NULL))
            return false;
    }
    return true;
}

/* Whether the first rank of a destination stage looks as if it could be planned. */
static bool looks_right(struct rfs_planner *planner, uint32_t rank)
{
    RFS_CLEANUP(rfs_planning_end) struct planning planning = {.planner = planner};
    bool right = true;

    if (rfs_planning_begin(planner, rank, &planning, NULL) || rfs_plan_leads(&planning))
        return true; /* it is not known */
    for (uint32_t s = 0; right && s < planning.n_stages; s++)
        right = !planning.stages[s].needed || is_divided(&planning, s);
    return right && !rfs_plan_matches_nothing(&planning);
}

int rfs_planner_check_shapes(struct rfs_planner *planner, struct rfs_error *err)
{
    const struct rfs_scale *scale = &planner->scale;
    const struct rfs_rank_plan *plan;
    struct rfs_use use;
    int rc = 0;

    rfs_catalog_begin(planner->config.catalog, &use);
    for (uint32_t d = 0; rc == 0 && d < scale->dst_stages && d < STAGES_MOST; d++)
        if (!looks_right(planner, d * scale->dst_devices))
            rc = rfs_planner_rank(planner, d * scale->dst_devices, &plan, err);
    rfs_catalog_end(planner->config.catalog, &use);
    return rc;
}
