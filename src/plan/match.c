/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the strategy of a source is that of its files. One of another network has no name in
 * common with them: everything would be copied as one rank has it. What was indexed for a plan is
 * looked at, and of the stages that it does not need the headers of one rank, and only if nothing
 * matches before.
 */
#include "plan/internal.h"

#include "base/suggest.h"

#define NAMES_MOST 32 /* of each side, to be compared with each other */
#define NAME_SHOWN 200

struct matching {
    const struct rfs_planner *planner;
    const struct rfs_strategy *strategy; /* the source's, or without one the destination's */
    size_t known;                        /* names that the strategy has */
    size_t tensors; /* of more than one element, or map tensors: a strategy may cut them */
    size_t known_tensors;
    const char *names[NAMES_MOST]; /* of such, that it does not have */
    size_t n_names;
};

static bool is_known(const struct matching *matching, uint32_t name)
{
    const struct rfs_role_name known = rfs_plan_name(matching->planner, name);

    return (matching->planner->config.src ? known.src : known.dst) != RFS_NO_ID;
}

static void add(struct matching *matching, uint32_t name, uint32_t type)
{
    struct rfs_catalog *catalog = matching->planner->config.catalog;
    const struct rfs_type *of = rfs_catalog_type(catalog, type);
    const bool known = is_known(matching, name);
    const bool tensor = of->kind != RFS_STRING && !rfs_plan_one_element(of) && of->bytes > 0;

    matching->known += known;
    matching->tensors += tensor;
    matching->known_tensors += known && tensor;
    if (tensor && !known && matching->n_names < NAMES_MOST)
        matching->names[matching->n_names++] = rfs_catalog_name(catalog, name);
}

static void add_needed(struct planning *planning, struct matching *matching)
{
    for (uint32_t s = 0; s < planning->n_stages; s++) {
        const struct stage_use *use = &planning->stages[s];
        const size_t n = !use->needed ? 0 : use->presence ? use->presence->n : use->lead_index->n;
        for (size_t i = 0; i < n; i++) {
            const uint32_t name =
                use->presence ? use->presence->order[i] : use->lead_index->entries[i].name;
            if (planning->origins[name].stage == s)
                add(matching, name, planning->origins[name].type);
        }
    }
}

/* Whether a rank of a stage that is not needed has a name of the strategy. */
static bool others_match(struct planning *planning, struct matching *matching)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    const uint32_t devices = planning->planner->scale.src_devices;

    for (uint32_t s = 0; s < planning->n_stages; s++) {
        const uint32_t base = rfs_plan_base(planning->planner, s);
        const struct rfs_index *index;
        uint32_t local = 0;
        while (local < devices && !rfs_catalog_has(catalog, base + local))
            local++;
        if (planning->stages[s].needed || local == devices ||
            rfs_catalog_index(catalog, base + local, RFS_NO_RANK, &index, NULL) != 0)
            continue;
        for (size_t i = 0; i < index->n; i++)
            if (is_known(matching, index->entries[i].name))
                return true;
    }
    return false;
}

/*
 * The two names that are closest to each other: one that the files have, and one of the strategy.
 */
static void find_closest(const struct matching *matching, const char **there, const char **here)
{
    const size_t count = rfs_strategy_count(matching->strategy);
    const size_t n = count < NAMES_MOST ? count : NAMES_MOST;
    unsigned least = UINT32_MAX;

    *there = matching->names[0];
    *here = rfs_strategy_param(matching->strategy, 0);
    for (size_t i = 0; i < matching->n_names && least > 0; i++)
        for (size_t k = 0; k < n; k++) {
            const char *param = rfs_strategy_param(matching->strategy, count * k / n);
            const unsigned edits = rfs_suggest_distance(matching->names[i], param);
            if (edits < least) {
                least = edits;
                *there = matching->names[i];
                *here = param;
            }
        }
}

/* Whether most of the tensors have names that the strategy does not have. */
static bool matches_little(struct planning *planning, struct matching *matching)
{
    const struct rfs_planner_config *config = &planning->planner->config;

    *matching = (struct matching){.planner = planning->planner,
                                  .strategy = config->src ? config->src : config->dst};
    if (!matching->strategy || rfs_strategy_count(matching->strategy) == 0 ||
        rfs_strategy_by_rules(matching->strategy))
        return false;
    add_needed(planning, matching);
    return matching->known_tensors * 2 < matching->tensors && matching->n_names > 0;
}

bool rfs_plan_matches_nothing(struct planning *planning)
{
    struct matching matching;

    return matches_little(planning, &matching) && matching.known == 0 &&
           !others_match(planning, &matching);
}

int rfs_plan_check_match(struct planning *planning)
{
    struct rfs_planner *planner = planning->planner;
    const struct rfs_planner_config *config = &planner->config;
    struct matching matching;
    const char *there;
    const char *here;

    if (!matches_little(planning, &matching))
        return 0;
    const bool none = matching.known == 0 && !others_match(planning, &matching);
    if (!none && atomic_exchange(&planner->reported_match, true))
        return 0;
    find_closest(&matching, &there, &here);
    if (none)
        return rfs_fail(planning->err, -EINVAL, RFS_IN(rfs_strategy_name(matching.strategy)),
                        "the strategy file of the network that was saved",
                        "none of its parameters is in the checkpoint %s; the closest names are "
                        "'%.*s' there and '%.*s' here",
                        rfs_catalog_path(config->catalog), NAME_SHOWN, there, NAME_SHOWN, here);
    rfs_log(config->log, RFS_WARNING,
            "%s: has only %zu of %zu tensors of the checkpoint, and may be of another network; the "
            "closest names are '%.*s' there and '%.*s' here",
            rfs_strategy_name(matching.strategy), matching.known_tensors, matching.tensors,
            NAME_SHOWN, there, NAME_SHOWN, here);
    return 0;
}
