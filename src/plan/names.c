/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layouts and mapped names of each name of the catalogue, by the strategies and the user's map,
 * looked up when the name is first asked for.
 *
 * Names lie in chunks that never move, as in base/intern.c: chunk k holds 2^(k + FIRST_BITS) of
 * them. The first thread that needs a place writes it. Several may do so at once: they write the
 * same. src comes last; with it the others are there. Without memory for a chunk, the name is
 * looked up each time.
 */
#include "plan/internal.h"

enum { FIRST_BITS = 8, CHUNKS = 33 - FIRST_BITS };

struct place {
    _Atomic(const char *) shown;
    atomic_uint_least32_t dst;
    atomic_uint_least32_t src; /* 1 + its position, or RFS_NO_ID; 0: not looked up yet */
};

struct rfs_plan_names {
    _Atomic(struct place *) chunks[CHUNKS];
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

/* NULL: no memory. */
static struct place *make_chunk(_Atomic(struct place *) *chunk, size_t n)
{
    struct place *fresh = calloc(n, sizeof *fresh);
    struct place *shared = NULL;

    if (!fresh || atomic_compare_exchange_strong(chunk, &shared, fresh))
        return fresh;
    free(fresh);
    return shared;
}

static struct place *place_of(struct rfs_plan_names *names, uint32_t name)
{
    const uint64_t at = (uint64_t)name + (UINT64_C(1) << FIRST_BITS);
    const unsigned high = 63U - (unsigned)__builtin_clzll(at);
    const size_t n = (size_t)1 << high;
    _Atomic(struct place *) *chunk = &names->chunks[high - FIRST_BITS];
    struct place *places = atomic_load_explicit(chunk, memory_order_acquire);

    if (!places)
        places = make_chunk(chunk, n);
    return places ? &places[at - n] : NULL;
}

struct rfs_role_name rfs_plan_name(const struct rfs_planner *planner, uint32_t name)
{
    struct place *place = place_of(planner->names, name);
    const uint32_t src = place ? atomic_load_explicit(&place->src, memory_order_acquire) : 0;

    if (src != 0)
        return (struct rfs_role_name){
            atomic_load_explicit(&place->shown, memory_order_relaxed),
            src == RFS_NO_ID ? RFS_NO_ID : src - 1,
            atomic_load_explicit(&place->dst, memory_order_relaxed),
        };
    const struct rfs_role_rules rules = rfs_plan_rules(planner);
    const struct rfs_role_name found =
        rfs_role_look_up(&rules, rfs_catalog_name(planner->config.catalog, name));
    if (!place)
        return found;
    atomic_store_explicit(&place->shown, found.shown, memory_order_relaxed);
    atomic_store_explicit(&place->dst, found.dst, memory_order_relaxed);
    atomic_store_explicit(&place->src, found.src == RFS_NO_ID ? RFS_NO_ID : found.src + 1,
                          memory_order_release);
    return found;
}

struct rfs_role rfs_plan_role(const struct rfs_planner *planner, uint32_t name, uint32_t src_stage,
                              uint32_t dst_stage)
{
    const struct rfs_role_rules rules = rfs_plan_rules(planner);
    const struct rfs_role_name known =
        rfs_plan_is_lacking(planner, name)
            ? rfs_role_look_up_left_out(&rules, rfs_catalog_name(planner->config.catalog, name))
            : rfs_plan_name(planner, name);

    return rfs_role_of(&rules, &known, src_stage, dst_stage);
}

struct rfs_role rfs_plan_role_of_param(const struct rfs_planner *planner, size_t i,
                                       uint32_t src_stage, uint32_t dst_stage)
{
    const struct rfs_role_rules rules = rfs_plan_rules(planner);
    struct rfs_role_name known = planner->params[i];

    if (planner->config.lacking) {
        const char *param = rfs_strategy_param(rules.src, i);
        struct rfs_intern *names = rfs_catalog_tables(planner->config.catalog)->names;
        if (rfs_plan_is_lacking(planner, rfs_intern_find(names, param, strlen(param))))
            known = rfs_role_look_up_left_out(&rules, param);
    }
    return rfs_role_of(&rules, &known, src_stage, dst_stage);
}
