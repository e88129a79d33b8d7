/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/role.h"

/* The layout of a parameter in a stage, or in the lowest stage that has one. */
static const struct rfs_layout *layout_near(const struct rfs_strategy *strategy, size_t i,
                                            uint32_t stage)
{
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, i, stage);
    return layout ? layout
                  : rfs_strategy_layout(strategy, i, rfs_strategy_next_stage(strategy, i, 0));
}

/* The position of a name in a strategy, which may be NULL. */
static uint32_t find(const struct rfs_strategy *strategy, const char *name)
{
    const ptrdiff_t i = strategy ? rfs_strategy_find(strategy, name) : -1;

    return i < 0 ? RFS_NO_ID : (uint32_t)i;
}

/*
 * A strategy file calls parameters as its run does; rules were made for the names of the source. A
 * parameter that is left out (SHOWN is NULL) keeps its own name.
 */
static struct rfs_role_name look_up(const struct rfs_role_rules *rules, const char *name,
                                    const char *shown)
{
    const bool by_own = !shown || !rules->dst || rfs_strategy_by_rules(rules->dst);
    struct rfs_role_name out = {shown, find(rules->src, name),
                                find(rules->dst, by_own ? name : shown)};

    if (out.dst == RFS_NO_ID && !by_own && shown != name)
        out.dst = find(rules->dst, name);
    return out;
}

struct rfs_role_name rfs_role_look_up(const struct rfs_role_rules *rules, const char *name)
{
    return look_up(rules, name, rfs_output_map_name(rules->output_map, name));
}

struct rfs_role_name rfs_role_look_up_left_out(const struct rfs_role_rules *rules, const char *name)
{
    return look_up(rules, name, NULL);
}

int rfs_role_look_up_all(const struct rfs_role_rules *rules, struct rfs_role_name **out,
                         struct rfs_error *err)
{
    const size_t n = rules->src ? rfs_strategy_count(rules->src) : 0;
    struct rfs_role_name *names = *out = malloc((n + 1) * sizeof *names);
    bool common = !rules->src || !rules->dst;

    if (!names)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        names[i] = rfs_role_look_up(rules, rfs_strategy_param(rules->src, i));
        common = common || names[i].dst != RFS_NO_ID;
    }
    if (common)
        return 0;
    free(names);
    *out = NULL;
    return rfs_fail(
        err, -EINVAL, RFS_IN(rfs_strategy_name(rules->dst)), "strategy files of the same network",
        "none of its parameters is in the source strategy %s", rfs_strategy_name(rules->src));
}

const struct rfs_layout *rfs_role_source_layout(const struct rfs_role_rules *rules,
                                                const struct rfs_role_name *name,
                                                uint32_t src_stage)
{
    return name->src == RFS_NO_ID ? NULL : layout_near(rules->src, name->src, src_stage);
}

struct rfs_role rfs_role_of(const struct rfs_role_rules *rules, const struct rfs_role_name *name,
                            uint32_t src_stage, uint32_t dst_stage)
{
    const bool in_dst = name->dst != RFS_NO_ID;
    struct rfs_role role = {.kind = RFS_ROLE_DROPPED,
                            .shown = name->shown,
                            .src = rfs_role_source_layout(rules, name, src_stage),
                            .in_dst = !rules->dst || in_dst};

    role.in_src = !rules->src || role.src;
    if (in_dst)
        role.dst = rfs_strategy_layout(rules->dst, name->dst, dst_stage);
    const bool elsewhere = in_dst && !role.dst; /* in the destination, but not in this stage */
    if (!elsewhere || !role.in_src)
        role.kind = (rules->src && !role.src) || (rules->dst && !role.dst) ? RFS_ROLE_COPIED
                                                                           : RFS_ROLE_SLICED;
    return role;
}

bool rfs_role_is_needed(const struct rfs_role_rules *rules, const struct rfs_role_name *name,
                        uint32_t dst_stage)
{
    return name->dst == RFS_NO_ID || rfs_strategy_layout(rules->dst, name->dst, dst_stage) != NULL;
}
