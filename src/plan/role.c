/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/role.h"

#include "plan/internal.h"

/* Returns the layout of a parameter in a stage, or in the lowest stage that has one. */
static const struct rfs_layout *layout_near(const struct rfs_strategy *strategy, size_t i,
                                            uint32_t stage)
{
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, i, stage);
    return layout ? layout
                  : rfs_strategy_layout(strategy, i, rfs_strategy_next_stage(strategy, i, 0));
}

/* Returns the position of a name in a strategy, which may be NULL, or RFS_NO_ID. */
static uint32_t find(const struct rfs_strategy *strategy, const char *name)
{
    const ptrdiff_t i = strategy ? rfs_strategy_find(strategy, name) : -1;

    return i < 0 ? RFS_NO_ID : (uint32_t)i;
}

/*
 * Looks up a name, which the map makes RENAMED. A strategy file calls parameters as its run does;
 * rules were made for the names of the source. A parameter that the map leaves out (RENAMED is
 * NULL) keeps its own name.
 */
static struct rfs_role_name look_up(const struct rfs_role_rules *rules, const char *name,
                                    const char *renamed, const char *shown)
{
    const bool by_own = !renamed || !rules->dst || rfs_strategy_facts(rules->dst)->by_rules;
    struct rfs_role_name out = {shown, find(rules->src, name),
                                find(rules->dst, by_own ? name : renamed)};

    if (out.dst == RFS_NO_ID && !by_own && renamed != name)
        out.dst = find(rules->dst, name);
    return out;
}

/* Looks up a name in the source as the strategies and the user's options know it. */
static struct rfs_role_name look_up_by_map(const struct rfs_role_rules *rules, const char *name)
{
    const char *renamed = rfs_names_renamed(rules->names, name);

    return look_up(rules, name, renamed, rfs_names_has(rules->names, renamed) ? renamed : NULL);
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
        names[i] = look_up_by_map(rules, rfs_strategy_param(rules->src, i));
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

/* ---- what a planner goes without ------------------------------------------------------------- */

int rfs_plan_lack(const struct rfs_planner *planner, uint32_t name, uint32_t rank)
{
    uint32_t *from = RFS_VEC_AT(&planner->config.lacking->from, name, 0);

    if (!from)
        return -ENOMEM;
    *from = rank + 1;
    return 0;
}

bool rfs_plan_is_lost(const struct rfs_planner *planner, uint32_t name, enum rfs_lost lost)
{
    const struct rfs_lacking *lacking = planner->config.lacking;

    return lacking && planner->config.lost == lost && name < lacking->from.n &&
           lacking->from.data[name] > 0;
}

/* ---- the roles of a planner ------------------------------------------------------------------ */

/*
 * The layouts and mapped names of each name of the catalogue, by the strategies and the user's map,
 * looked up when the name is first asked for.
 *
 * Names lie in chunks that never move, as in base/intern.c: chunk k holds 2^(k + FIRST_BITS) of
 * them. The first thread that needs a name writes it. Several may do so at once: they write the
 * same. src comes last; with it the others are there. Without memory for a chunk, the name is
 * looked up each time.
 */
enum { FIRST_BITS = 8, CHUNKS = 33 - FIRST_BITS };

struct known_name {
    _Atomic(const char *) shown;
    atomic_uint_least32_t dst;
    atomic_uint_least32_t src; /* position + 1, or RFS_NO_ID; 0: not looked up yet */
};

struct rfs_plan_names {
    _Atomic(struct known_name *) chunks[CHUNKS];
};

struct rfs_plan_names *rfs_plan_names_new(void)
{
    return calloc(1, sizeof(struct rfs_plan_names));
}

void rfs_plan_names_free(struct rfs_plan_names *names)
{
    for (size_t k = 0; names && k < CHUNKS; k++)
        free(atomic_load_explicit(&names->chunks[k], memory_order_relaxed));
    free(names);
}

/* Makes a chunk of N names, or takes that of a faster thread. NULL when out of memory. */
static struct known_name *make_chunk(_Atomic(struct known_name *) *chunk, size_t n)
{
    struct known_name *fresh = calloc(n, sizeof *fresh);

    return fresh ? RFS_PUBLISH(chunk, fresh, free) : NULL;
}

static struct known_name *known_name_of(struct rfs_plan_names *names, uint32_t name)
{
    const uint64_t at = (uint64_t)name + (UINT64_C(1) << FIRST_BITS);
    const unsigned high = 63U - (unsigned)__builtin_clzll(at);
    const size_t n = (size_t)1 << high;
    _Atomic(struct known_name *) *chunk = &names->chunks[high - FIRST_BITS];
    struct known_name *chunk_names = RFS_PUBLISHED(chunk);

    if (!chunk_names)
        chunk_names = make_chunk(chunk, n);
    return chunk_names ? &chunk_names[at - n] : NULL;
}

struct rfs_role_name rfs_plan_name(const struct rfs_planner *planner, uint32_t name)
{
    struct known_name *memo = known_name_of(planner->names, name);
    const uint32_t src = memo ? atomic_load_explicit(&memo->src, memory_order_acquire) : 0;

    if (src != 0)
        return (struct rfs_role_name){
            atomic_load_explicit(&memo->shown, memory_order_relaxed),
            src == RFS_NO_ID ? RFS_NO_ID : src - 1,
            atomic_load_explicit(&memo->dst, memory_order_relaxed),
        };
    const struct rfs_role_rules rules = rfs_plan_rules(planner);
    const struct rfs_role_name found =
        look_up_by_map(&rules, rfs_catalog_name(planner->config.catalog, name));
    if (!memo)
        return found;
    /* The release of src, which comes last, is for the acquire above: it has the others, too. */
    atomic_store_explicit(&memo->shown, found.shown, memory_order_relaxed);
    atomic_store_explicit(&memo->dst, found.dst, memory_order_relaxed);
    atomic_store_explicit(&memo->src, found.src == RFS_NO_ID ? RFS_NO_ID : found.src + 1,
                          memory_order_release);
    return found;
}

struct rfs_role rfs_plan_role(const struct rfs_planner *planner, uint32_t name, uint32_t src_stage,
                              uint32_t dst_stage)
{
    const struct rfs_role_rules rules = rfs_plan_rules(planner);
    const struct rfs_role_name known =
        rfs_plan_is_lost(planner, name, RFS_LOST_LEFT_OUT)
            ? look_up(&rules, rfs_catalog_name(planner->config.catalog, name), NULL, NULL)
            : rfs_plan_name(planner, name);

    return rfs_role_of(&rules, &known, src_stage, dst_stage);
}

struct rfs_role rfs_plan_role_of_param(const struct rfs_planner *planner, size_t i,
                                       uint32_t src_stage, uint32_t dst_stage)
{
    const struct rfs_role_rules rules = rfs_plan_rules(planner);
    struct rfs_role_name known = planner->params[i];

    if (planner->config.lost == RFS_LOST_LEFT_OUT) {
        const char *param = rfs_strategy_param(rules.src, i);
        struct rfs_intern *names = rfs_catalog_tables(planner->config.catalog)->names;
        const uint32_t name = rfs_intern_find(names, param, strlen(param));
        if (rfs_plan_is_lost(planner, name, RFS_LOST_LEFT_OUT))
            known = look_up(&rules, param, NULL, NULL);
    }
    return rfs_role_of(&rules, &known, src_stage, dst_stage);
}
