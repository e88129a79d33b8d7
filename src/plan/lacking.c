/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks and tensors that a planner goes without, so that the rest of a damaged source is shown; and
 * tensors that it lists, and that are not complete.
 */
#include "plan/internal.h"

int rfs_plan_lack(const struct rfs_planner *planner, uint32_t name, uint32_t rank)
{
    const struct rfs_planner_config *config = &planner->config;
    struct rfs_lacking *lacking = config->lacking ? config->lacking : config->incomplete;

    while (lacking->from.n <= name)
        if (!RFS_PUSH(&lacking->from, 0))
            return -ENOMEM;
    lacking->from.data[name] = rank + 1;
    return 0;
}

/* Whether the list, which may be NULL, has that name. */
static bool is_in(const struct rfs_lacking *lacking, uint32_t name)
{
    return lacking && name < lacking->from.n && lacking->from.data[name] > 0;
}

bool rfs_plan_is_lacking(const struct rfs_planner *planner, uint32_t name)
{
    return is_in(planner->config.lacking, name);
}

bool rfs_plan_is_incomplete(const struct rfs_planner *planner, uint32_t name)
{
    return is_in(planner->config.incomplete, name);
}

int rfs_plan_lack_file(const struct rfs_planner *planner, uint32_t rank)
{
    struct rfs_lacking *lacking = planner->config.lacking;

    return rfs_lacking_file(lacking, rank) || RFS_PUSH(&lacking->damaged, rank) ? 0 : -ENOMEM;
}

/* All of its files are gone: parameters that were theirs alone are known by the strategy. */
int rfs_plan_lack_stage(const struct planning *planning, uint32_t s)
{
    const struct rfs_planner *planner = planning->planner;
    const struct rfs_strategy *src = planner->config.src;
    struct rfs_intern *names = rfs_catalog_tables(planner->config.catalog)->names;

    for (size_t i = 0; src && i < rfs_strategy_count(src); i++) {
        const char *param = rfs_strategy_param(src, i);
        const uint32_t first = rfs_strategy_next_stage(src, i, 0);
        if (first != s || rfs_strategy_next_stage(src, i, s + 1) != RFS_NO_STAGE)
            continue;
        const uint32_t name = rfs_intern_add(names, param, strlen(param));
        if (name == RFS_NO_ID || rfs_plan_lack(planner, name, planning->stages[s].base))
            return -ENOMEM;
    }
    return 0;
}
