/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the planner uses its strategies, and the proof that they go with each other and with the rank
 * folders.
 */
#include "plan/internal.h"

void rfs_plan_needed_stages(const struct rfs_planner *planner, uint32_t dst_stage,
                            struct stage_use *stages)
{
    const struct rfs_role_rules rules = rfs_plan_rules(planner);

    if (!rules.src || planner->part) {
        stages[0].needed = true;
        return;
    }
    uint32_t left = planner->scale.src_stages;
    for (size_t i = 0; left > 0 && i < rfs_strategy_count(rules.src); i++) {
        if (!rfs_role_is_needed(&rules, &planner->params[i], dst_stage))
            continue;
        for (uint32_t s = rfs_strategy_next_stage(rules.src, i, 0); s != RFS_NO_STAGE;
             s = rfs_strategy_next_stage(rules.src, i, s + 1)) {
            left -= !stages[s].needed;
            stages[s].needed = true;
        }
    }
}

static bool is_state(const char *name)
{
    return strncmp(name, "accu_grads", 10) == 0 || strncmp(name, "adam_v", 6) == 0 ||
           strncmp(name, "adam_m", 6) == 0;
}

/*
 * Whether MindSpore transforms by stage: both strategies have one stage, and the source's
 * parameters, gradients and moments aside, are fewer than the destination's and all among them.
 * (Those that the user leaves out count, too.) It does so with .ckpt files only. Rules have no
 * stages, so this does not apply to them.
 */
static bool is_part(const struct rfs_planner *planner)
{
    const struct rfs_strategy *src = planner->config.src;
    const struct rfs_strategy *dst = planner->config.dst;
    size_t n_src = 0;
    size_t n_dst = 0;

    if (!src || !dst || rfs_strategy_stages(src) != 1 || rfs_strategy_stages(dst) != 1 ||
        rfs_catalog_format(planner->config.catalog) != RFS_FORMAT_CKPT ||
        rfs_strategy_by_rules(src) || rfs_strategy_by_rules(dst))
        return false;
    for (size_t i = 0; i < rfs_strategy_count(dst); i++)
        n_dst += !is_state(rfs_strategy_param(dst, i));
    for (size_t i = 0; i < rfs_strategy_count(src); i++) {
        if (is_state(rfs_strategy_param(src, i)))
            continue;
        n_src++;
        if (planner->params[i].dst == RFS_NO_ID)
            return false;
    }
    return n_src < n_dst;
}

/*
 * Whether one whole checkpoint is to be made of a source that is a stage by itself: its strategy is
 * of that stage, not the first, and the tree has more ranks than the strategy.
 */
static bool is_whole_part(const struct rfs_planner *planner)
{
    const struct rfs_strategy *src = planner->config.src;

    return src && !planner->config.dst && rfs_strategy_stages(src) == 1 &&
           rfs_strategy_first_item_stage(src) > 0 &&
           rfs_catalog_ranks(planner->config.catalog) > rfs_strategy_devices(src);
}

static void report_whole_part(const struct rfs_planner *planner)
{
    const struct rfs_catalog *catalog = planner->config.catalog;
    const uint32_t base = planner->scale.src_base;
    const uint32_t end = base + planner->scale.src_devices;
    bool others = rfs_catalog_ranks(catalog) > end;

    for (uint32_t rank = 0; !others && rank < base; rank++)
        others = rfs_catalog_has(catalog, rank);
    if (others)
        rfs_log(planner->config.log, RFS_WARNING,
                "the source strategy has stage %u alone: only rank_%u to rank_%u are read",
                planner->first_stage, base, end - 1);
}

bool rfs_plan_looks_swapped(const struct rfs_planner *planner)
{
    const struct rfs_catalog *catalog = planner->config.catalog;
    const struct rfs_scale *scale = &planner->scale;
    const uint32_t found = rfs_catalog_ranks(catalog);

    if (!planner->config.src || !planner->config.dst || planner->part ||
        found != (uint64_t)scale->dst_devices * scale->dst_stages ||
        found == (uint64_t)scale->src_devices * scale->src_stages)
        return false;
    for (uint32_t rank = 0; rank < found; rank++)
        if (!rfs_catalog_has(catalog, rank))
            return false;
    return true;
}

int rfs_plan_check_strategies(struct rfs_planner *planner, struct rfs_error *err)
{
    const struct rfs_strategy *src = planner->config.src;
    const struct rfs_strategy *dst = planner->config.dst;
    struct rfs_catalog *catalog = planner->config.catalog;
    struct rfs_scale *scale = &planner->scale;

    scale->src_devices = src ? rfs_strategy_devices(src) : 1;
    scale->src_stages = src ? rfs_strategy_stages(src) : 1;
    scale->dst_devices = dst ? rfs_strategy_devices(dst) : 1;
    scale->dst_stages = dst ? rfs_strategy_stages(dst) : 1;
    const struct rfs_role_rules rules = rfs_plan_rules(planner);
    const int rc = rfs_role_look_up_all(&rules, &planner->params, err);
    if (rc)
        return rc;
    const bool whole_part = is_whole_part(planner);
    planner->part =
        planner->config.template ? planner->config.template->part : whole_part || is_part(planner);
    planner->first_stage = planner->part ? rfs_strategy_first_item_stage(src) : 0;

    if (((uint64_t)planner->first_stage + 1) * scale->src_devices > RFS_MAX_DEVICES)
        return rfs_fail(err, -EINVAL, RFS_IN(rfs_strategy_name(src)),
                        "the strategy file that was saved with this checkpoint",
                        "its first strategy item is in stage %u, which with %u devices a stage is "
                        "beyond rank %u",
                        planner->first_stage, scale->src_devices, RFS_MAX_DEVICES - 1);
    scale->src_base = planner->first_stage * scale->src_devices;
    const uint64_t ranks = (uint64_t)scale->src_devices * scale->src_stages;
    if (whole_part && !planner->config.template)
        report_whole_part(planner);
    const uint32_t found = rfs_catalog_ranks(catalog);
    if (!planner->part && found > ranks)
        return rfs_fail(err, -EINVAL, RFS_IN(rfs_catalog_path(catalog)),
                        rfs_plan_looks_swapped(planner) ? RFS_PLAN_SWAPPED
                        : src ? "the strategy file that was saved with this checkpoint"
                              : RFS_PLAN_NO_STRATEGY,
                        "has rank_%u, but the source %s %llu rank%s", found - 1,
                        src ? "strategy describes" : "without a strategy has",
                        (unsigned long long)ranks, ranks == 1 ? "" : "s");
    const uint64_t targets = (uint64_t)scale->dst_devices * scale->dst_stages;
    if (targets > RFS_MAX_DEVICES)
        return rfs_fail(err, -EINVAL, RFS_IN(rfs_strategy_name(dst)), NULL,
                        "describes %llu ranks; at most %u can be shown",
                        (unsigned long long)targets, RFS_MAX_DEVICES);
    planner->n_ranks = (uint32_t)targets;
    return 0;
}
