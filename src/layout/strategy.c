/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a strategy's contents; strategy_build.c makes it. */
#include "base/order.h"
#include "base/text.h"
#include "layout/strategy_internal.h"

bool rfs_strategy_is_json(const char *name)
{
    return rfs_text_ends(name, ".json");
}

void rfs_strategy_free(struct rfs_strategy *strategy)
{
    if (strategy == NULL)
        return;
    rfs_intern_free(strategy->params);
    rfs_intern_free(strategy->edges);
    free(strategy->first);
    free(strategy->placements);
    free(strategy->layouts);
    free(strategy->name);
    free(strategy);
}

const char *rfs_strategy_name(const struct rfs_strategy *strategy)
{
    return strategy->name;
}

uint32_t rfs_strategy_stages(const struct rfs_strategy *strategy)
{
    return strategy->stages;
}

uint32_t rfs_strategy_devices(const struct rfs_strategy *strategy)
{
    return strategy->devices;
}

uint32_t rfs_strategy_first_item_stage(const struct rfs_strategy *strategy)
{
    return strategy->first_item_stage;
}

bool rfs_strategy_has_splits(const struct rfs_strategy *strategy)
{
    return rfs_intern_count(strategy->edges) > 0;
}

bool rfs_strategy_has_items(const struct rfs_strategy *strategy)
{
    return strategy->has_items;
}

bool rfs_strategy_is_merged(const struct rfs_strategy *strategy)
{
    return strategy->prefixed;
}

bool rfs_strategy_by_rules(const struct rfs_strategy *strategy)
{
    return strategy->by_rules;
}

size_t rfs_strategy_count(const struct rfs_strategy *strategy)
{
    return strategy->n_params;
}

const char *rfs_strategy_param(const struct rfs_strategy *strategy, size_t i)
{
    return rfs_intern_text(strategy->params, (uint32_t)i);
}

size_t rfs_strategy_layouts(const struct rfs_strategy *strategy)
{
    return strategy->n_layouts;
}

ptrdiff_t rfs_strategy_find(const struct rfs_strategy *strategy, const char *param)
{
    const uint32_t id = rfs_intern_find(strategy->params, param, strlen(param));

    return id == RFS_NO_ID ? -1 : (ptrdiff_t)id;
}

/* Of parameter i's placements, the first in STAGE or a higher one, or NULL. */
static const struct rfs_placement *placement_from(const struct rfs_strategy *strategy, size_t i,
                                                  uint32_t stage)
{
    const struct rfs_placement *placements = &strategy->placements[strategy->first[i]];
    const size_t n = strategy->first[i + 1] - strategy->first[i];
    const size_t at = RFS_BISECT(k, n, placements[k].stage >= stage);

    return at < n ? &placements[at] : NULL;
}

const struct rfs_layout *rfs_strategy_layout(const struct rfs_strategy *strategy, size_t i,
                                             uint32_t stage)
{
    const struct rfs_placement *at = placement_from(strategy, i, stage);

    return at != NULL && at->stage == stage ? &strategy->layouts[at->layout] : NULL;
}

uint32_t rfs_strategy_next_stage(const struct rfs_strategy *strategy, size_t i, uint32_t stage)
{
    const struct rfs_placement *at = placement_from(strategy, i, stage);

    return at != NULL ? at->stage : RFS_NO_STAGE;
}
