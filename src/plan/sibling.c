/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the plan of one rank tells of the others of its destination stage.
 *
 * Where a stage's files have equal headers, they share one index, so that the roles, the
 * geometries and the parameter list of a plan do not depend on the rank. Three things do: which
 * cells of a geometry a rank touches, which rank gives a copied parameter, and the proofs of those.
 * They are done for each rank, for the parameters that the first plan found to matter: one for each
 * geometry, and all that are copied.
 *
 * A plan with a presence map, lost data, manual splits of the destination (whose slices differ),
 * conversion rules or chunks takes the long way.
 */
#include "plan/internal.h"

#include "base/cleanup.h"

/*
 * Says whether ranks of this planner can be alike. Manual splits of the source do not matter: what
 * follows from them is in the types of the lead, and check_rows of sources.c proves the others.
 */
static bool may_be_alike(const struct rfs_planner *planner)
{
    const struct rfs_planner_config *config = &planner->config;

    return !config->lacking && !config->by_rules &&
           !(config->dst && rfs_strategy_has_splits(config->dst)) &&
           !rfs_catalog_chunks(config->catalog);
}

/*
 * Says whether a stage goes by its lead alone, which it then has: a stage that has none, or a
 * presence map, differs. When it is compared, that rank at least gives the order.
 */
static bool is_plain(const struct rfs_stage_use *use)
{
    return !use->needed || !use->differs;
}

/* Returns the serial of the index that leads a plain stage, or 0: it is not needed. */
static uint64_t lead_of(const struct rfs_stage_use *use)
{
    return use->needed ? use->lead_index->serial : 0;
}

/* Returns the serial of the index that gives the order of a plain stage, or 0 as lead_of does. */
static uint64_t order_of(const struct rfs_stage_use *use)
{
    return use->needed ? use->order->serial : 0;
}

void rfs_sibling_find(struct rfs_planning *planning)
{
    const struct rfs_planner *planner = planning->planner;
    const struct rfs_sibling *sibling = RFS_PUBLISHED(&planner->siblings[planning->stage]);

    for (uint32_t s = 0; sibling && s < planning->n_stages; s++)
        if (!is_plain(&planning->stages[s]) ||
            lead_of(&planning->stages[s]) != sibling->stages[s].lead)
            sibling = NULL;
    planning->sibling = sibling;
}

bool rfs_sibling_orders(const struct rfs_planning *planning)
{
    for (uint32_t s = 0; planning->sibling && s < planning->n_stages; s++)
        if (order_of(&planning->stages[s]) != planning->sibling->stages[s].order)
            return false;
    return planning->sibling != NULL;
}

void rfs_sibling_free(struct rfs_sibling *sibling)
{
    for (uint32_t s = 0; sibling && s < sibling->n_stages; s++)
        free(sibling->stages[s].names);
    if (sibling)
        free(sibling->copied);
    free(sibling);
}

RFS_CLEANUP_OF(sibling_cleanup, struct rfs_sibling *, rfs_sibling_free)

void rfs_sibling_keep(struct rfs_planning *planning, const struct rfs_params *params)
{
    struct rfs_planner *planner = planning->planner;
    const uint32_t n = planning->n_stages;

    if (!may_be_alike(planner) || RFS_PUBLISHED(&planner->siblings[planning->stage]))
        return;
    RFS_CLEANUP(sibling_cleanup)
    struct rfs_sibling *fresh = calloc(1, sizeof *fresh + n * sizeof *fresh->stages);
    if (!fresh)
        return; /* the next rank takes the long way, too */
    fresh->n_stages = n;
    for (uint32_t s = 0; s < n; s++) {
        struct rfs_stage_use *use = &planning->stages[s];
        if (!is_plain(use))
            return;
        struct rfs_sibling_stage *stage = &fresh->stages[s];
        stage->lead = lead_of(use);
        stage->order = order_of(use);
        stage->lacks = use->lacks;
        stage->n = use->wants.n;
        stage->names = RFS_STEAL(use->wants.data);
        use->wants.n = use->wants.cap = 0;
    }
    fresh->params = params;
    fresh->n_copied = planning->copied.n;
    fresh->copied = RFS_STEAL(planning->copied.data);
    planning->copied.n = planning->copied.cap = 0;
    RFS_PUBLISH(&planner->siblings[planning->stage], RFS_STEAL(fresh), rfs_sibling_free);
}
