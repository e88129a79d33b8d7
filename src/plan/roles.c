/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parameters are cut, copied or left out, and which source stages a destination stage needs.
 *
 * The rules are those of transform_checkpoints in MindSpore 2.10 (parallel/checkpoint_transform.py and
 * parallel/_parallel_serialization.py), told in doc/SEMANTICS.md.
 */
#include "plan/internal.h"

#include <errno.h>
#include <string.h>

/* The layout of a parameter in a stage, or in the lowest stage that has one. */
static const struct rfs_layout *layout_near(const struct rfs_strategy *strategy, size_t i,
                                            uint32_t stage)
{
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, i, stage);
    return layout ? layout
                  : rfs_strategy_layout(strategy, i, rfs_strategy_next_stage(strategy, i, 0));
}

/*
 * A strategy file calls parameters as its run does; rules were made for the names of the source. What is left out
 * (SHOWN is NULL) goes by its own name.
 */
static ptrdiff_t find_shown(const struct rfs_strategy *dst, const char *name, const char *shown)
{
    if (!shown || rfs_strategy_by_rules(dst))
        return rfs_strategy_find(dst, name);
    const ptrdiff_t i = rfs_strategy_find(dst, shown);
    return i >= 0 || shown == name ? i : rfs_strategy_find(dst, name);
}

ptrdiff_t rfs_plan_find_target(const struct rfs_planner *planner, const char *name)
{
    const char *shown = rfs_output_map_name(planner->config.output_map, name);
    return planner->config.dst ? find_shown(planner->config.dst, name, shown) : -1;
}

const struct rfs_layout *rfs_plan_source_layout(const struct rfs_planner *planner, const char *name,
                                                uint32_t src_stage)
{
    const struct rfs_strategy *src = planner->config.src;
    const ptrdiff_t i = src ? rfs_strategy_find(src, name) : -1;

    return i < 0 ? NULL : layout_near(src, (size_t)i, src_stage);
}

struct role_of rfs_plan_role(const struct rfs_planner *planner, const char *name,
                             uint32_t src_stage, uint32_t dst_stage)
{
    const struct rfs_strategy *src = planner->config.src;
    const struct rfs_strategy *dst = planner->config.dst;
    struct role_of of = {.role = ROLE_DROPPED, .in_src = !src, .in_dst = !dst};
    bool elsewhere = false; /* in the destination, but not in this stage */

    if (!rfs_plan_is_lacking(planner, name))
        of.shown = rfs_output_map_name(planner->config.output_map, name);
    if (src) {
        of.src = rfs_plan_source_layout(planner, name, src_stage);
        of.in_src = of.src != NULL;
    }
    if (dst) {
        const ptrdiff_t i = find_shown(dst, name, of.shown);
        of.in_dst = i >= 0;
        if (i >= 0)
            of.dst = rfs_strategy_layout(dst, (size_t)i, dst_stage);
        elsewhere = i >= 0 && !of.dst;
    }
    if (!elsewhere || !of.in_src)
        of.role = (src && !of.src) || (dst && !of.dst) ? ROLE_COPIED : ROLE_SLICED;
    return of;
}

void rfs_plan_needed_stages(const struct rfs_planner *planner, uint32_t dst_stage,
                            struct stage_use *stages)
{
    const struct rfs_strategy *src = planner->config.src;
    const struct rfs_strategy *dst = planner->config.dst;

    if (!src || planner->part) {
        stages[0].needed = true;
        return;
    }
    for (size_t i = 0; i < rfs_strategy_count(src); i++) {
        const ptrdiff_t at = rfs_plan_find_target(planner, rfs_strategy_param(src, i));
        if (at >= 0 && !rfs_strategy_layout(dst, (size_t)at, dst_stage))
            continue;
        for (uint32_t s = rfs_strategy_next_stage(src, i, 0); s != RFS_NO_STAGE;
             s = rfs_strategy_next_stage(src, i, s + 1))
            stages[s].needed = true;
    }
}

static bool is_state(const char *name)
{
    return strncmp(name, "accu_grads", 10) == 0 || strncmp(name, "adam_v", 6) == 0 ||
           strncmp(name, "adam_m", 6) == 0;
}

/*
 * Whether MindSpore transforms by stage: both strategies have one stage, and the source's parameters,
 * gradients and moments aside, are fewer than the destination's and all among them. (Those that the user leaves
 * out count, too.) It does so with .ckpt files only. Rules know of no stages, so they say nothing of the kind.
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
        const char *name = rfs_strategy_param(src, i);
        if (is_state(name))
            continue;
        n_src++;
        if (rfs_plan_find_target(planner, name) < 0)
            return false;
    }
    return n_src < n_dst;
}

static bool have_common(const struct rfs_planner *planner)
{
    const struct rfs_strategy *src = planner->config.src;

    for (size_t i = 0; i < rfs_strategy_count(src); i++)
        if (rfs_plan_find_target(planner, rfs_strategy_param(src, i)) >= 0)
            return true;
    return false;
}

/*
 * Whether one whole checkpoint is to be made of a source that is a stage by itself: its strategy is of that stage, not
 * the first, and the tree has more ranks than the strategy.
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
                "the source strategy is that of stage %u: rank_%u to rank_%u are read, and no "
                "others",
                planner->first_stage, base, end - 1);
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
    const bool whole_part = is_whole_part(planner);
    planner->part =
        planner->config.template ? planner->config.template->part : whole_part || is_part(planner);
    planner->first_stage = planner->part ? rfs_strategy_first_item_stage(src) : 0;

    if (src && dst && !have_common(planner))
        return rfs_fail(
            err, -EINVAL, RFS_IN(rfs_strategy_name(dst)), "strategy files of the same network",
            "none of its parameters is in the source strategy %s", rfs_strategy_name(src));
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
                        src ? "the strategy file that was saved with this checkpoint"
                            : "src_strategy=FILE, which says how they were cut",
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
