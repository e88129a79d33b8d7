/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/role.h"

#include <errno.h>

/* The layout of a parameter in a stage, or in the lowest stage that has one. */
static const struct rfs_layout *layout_near(const struct rfs_strategy *strategy, size_t i,
                                            uint32_t stage)
{
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, i, stage);
    return layout ? layout
                  : rfs_strategy_layout(strategy, i, rfs_strategy_next_stage(strategy, i, 0));
}

/*
 * A strategy file calls parameters as its run does; rules were made for the names of the source. A
 * parameter that is left out (SHOWN is NULL) keeps its own name.
 */
static ptrdiff_t find_shown(const struct rfs_strategy *dst, const char *name, const char *shown)
{
    if (!shown || rfs_strategy_by_rules(dst))
        return rfs_strategy_find(dst, name);
    const ptrdiff_t i = rfs_strategy_find(dst, shown);
    return i >= 0 || shown == name ? i : rfs_strategy_find(dst, name);
}

ptrdiff_t rfs_role_target(const struct rfs_role_rules *rules, const char *name)
{
    const char *shown = rfs_output_map_name(rules->output_map, name);
    return rules->dst ? find_shown(rules->dst, name, shown) : -1;
}

const struct rfs_layout *rfs_role_source_layout(const struct rfs_role_rules *rules,
                                                const char *name, uint32_t src_stage)
{
    const ptrdiff_t i = rules->src ? rfs_strategy_find(rules->src, name) : -1;

    return i < 0 ? NULL : layout_near(rules->src, (size_t)i, src_stage);
}

static struct rfs_role role_as(const struct rfs_role_rules *rules, const char *name,
                               const char *shown, uint32_t src_stage, uint32_t dst_stage)
{
    const struct rfs_strategy *dst = rules->dst;
    struct rfs_role role = {
        .kind = RFS_ROLE_DROPPED, .shown = shown, .in_src = !rules->src, .in_dst = !dst};
    bool elsewhere = false; /* in the destination, but not in this stage */

    if (rules->src) {
        role.src = rfs_role_source_layout(rules, name, src_stage);
        role.in_src = role.src != NULL;
    }
    if (dst) {
        const ptrdiff_t i = find_shown(dst, name, shown);
        role.in_dst = i >= 0;
        if (i >= 0)
            role.dst = rfs_strategy_layout(dst, (size_t)i, dst_stage);
        elsewhere = i >= 0 && !role.dst;
    }
    if (!elsewhere || !role.in_src)
        role.kind =
            (rules->src && !role.src) || (dst && !role.dst) ? RFS_ROLE_COPIED : RFS_ROLE_SLICED;
    return role;
}

struct rfs_role rfs_role_of(const struct rfs_role_rules *rules, const char *name,
                            uint32_t src_stage, uint32_t dst_stage)
{
    return role_as(rules, name, rfs_output_map_name(rules->output_map, name), src_stage, dst_stage);
}

struct rfs_role rfs_role_left_out(const struct rfs_role_rules *rules, const char *name,
                                  uint32_t src_stage, uint32_t dst_stage)
{
    return role_as(rules, name, NULL, src_stage, dst_stage);
}

bool rfs_role_is_needed(const struct rfs_role_rules *rules, size_t i, uint32_t dst_stage)
{
    const ptrdiff_t at = rfs_role_target(rules, rfs_strategy_param(rules->src, i));

    return at < 0 || rfs_strategy_layout(rules->dst, (size_t)at, dst_stage) != NULL;
}

int rfs_role_check(const struct rfs_role_rules *rules, struct rfs_error *err)
{
    if (!rules->src || !rules->dst)
        return 0;
    for (size_t i = 0; i < rfs_strategy_count(rules->src); i++)
        if (rfs_role_target(rules, rfs_strategy_param(rules->src, i)) >= 0)
            return 0;
    return rfs_fail(
        err, -EINVAL, RFS_IN(rfs_strategy_name(rules->dst)), "strategy files of the same network",
        "none of its parameters is in the source strategy %s", rfs_strategy_name(rules->src));
}
