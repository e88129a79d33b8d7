/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/by_rules.h"

#include "base/cleanup.h"
#include "plan/internal.h"
#include "rules/hf_config.h"

void rfs_by_rules_free(struct rfs_by_rules *by_rules)
{
    if (!by_rules)
        return;
    rfs_catalog_close(by_rules->catalog);
    rfs_rules_map_free(by_rules->map);
    free(by_rules->lost);
    free(by_rules);
}

RFS_CLEANUP_OF(by_rules_cleanup, struct rfs_by_rules *, rfs_by_rules_free)

/* Refuses plus for quantized tensors, whose numbers are rounded to one dtype or another. */
static int check_plus(const struct rfs_by_rules *by_rules, struct rfs_error *err)
{
    struct rfs_catalog *catalog = by_rules->config.catalog;
    const struct rfs_rules_map *map = by_rules->map;
    struct rfs_use use;
    int rc = 0;

    rfs_catalog_begin(catalog, &use);
    for (size_t i = 0; rc == 0 && i < map->links.n; i++) {
        const struct rfs_rules_link *link = &map->links.data[i];
        const uint32_t name = by_rules->plan->params->targets[link->source].name;
        if (link->plus != 0 && rfs_catalog_plain_dtype(catalog, name, RFS_FLOAT32) != RFS_FLOAT32)
            rc = rfs_fail(err, -ENOTSUP,
                          RFS_OF(rfs_catalog_path(catalog), rfs_catalog_name(catalog, name)),
                          "rules without plus for it",
                          "is quantized, and plus is for tensors that are stored as numbers");
    }
    rfs_catalog_end(catalog, &use);
    return rc;
}

static void vanished_end(struct rfs_vanished *vanished)
{
    free(vanished->names.data);
    free(vanished->ranks.data);
}

static int compile(struct rfs_by_rules *by_rules, struct rfs_error *err)
{
    struct rfs_catalog *catalog = by_rules->config.catalog;
    const struct rfs_params *params = by_rules->plan->params;
    RFS_FREE struct rfs_rules_tensor *tensors = calloc(params->n + 1, sizeof *tensors);
    RFS_CLEANUP(vanished_end) struct rfs_vanished vanished = {.names = {.n = 0}};

    if (!tensors || rfs_plan_find_vanished(by_rules->config.whole, params, &vanished))
        return rfs_fail_memory(err);
    const struct rfs_rules_input input = {.config = by_rules->config.hf_config,
                                          .options = by_rules->config.options,
                                          .source = rfs_catalog_path(catalog),
                                          .tensors = tensors,
                                          .n = params->n,
                                          .lost = vanished.names.data,
                                          .n_lost = vanished.names.n,
                                          .report = by_rules->config.report,
                                          .ctx = by_rules->config.ctx};
    for (size_t i = 0; i < params->n; i++)
        tensors[i] = (struct rfs_rules_tensor){rfs_catalog_name(catalog, params->targets[i].name),
                                               rfs_catalog_type(catalog, params->targets[i].type)};
    const int rc = rfs_rules_compile(by_rules->config.rules, &input, &by_rules->map, err)
                       ?: rfs_hf_config_check(input.config, err);
    if (rc)
        return rc;
    const size_t lost = by_rules->map->lost;
    if (lost < vanished.names.n)
        return rfs_plan_fail_lost(by_rules->config.whole, vanished.names.data[lost],
                                  vanished.ranks.data[lost], err);
    return check_plus(by_rules, err);
}

static int derive(struct rfs_by_rules *by_rules, struct rfs_error *err)
{
    const struct rfs_rules_map *map = by_rules->map;
    struct rfs_tables *tables = rfs_catalog_tables(by_rules->config.catalog);
    RFS_FREE struct rfs_entry *entries = calloc(map->made.n + 1, sizeof *entries);

    if (!entries)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < map->made.n; i++) {
        const struct rfs_rules_made *made = &map->made.data[i];
        entries[i].name = rfs_intern_add(tables->names, made->name, strlen(made->name));
        entries[i].type = rfs_intern_add(tables->types, &made->type, sizeof made->type);
        if (entries[i].name == RFS_NO_ID || entries[i].type == RFS_NO_ID)
            return rfs_fail_memory(err);
    }
    const int rc =
        rfs_catalog_derive(by_rules->config.catalog, entries, map->made.n, &by_rules->catalog, err);
    if (rc == 0)
        by_rules->index = rfs_catalog_ready(by_rules->catalog, 0);
    return rc;
}

/* ---- incomplete tensors ---------------------------------------------------------------------- */

static bool is_incomplete(const struct rfs_by_rules *by_rules, uint32_t source)
{
    return rfs_plan_is_lost(by_rules->config.whole, by_rules->plan->params->targets[source].name,
                            RFS_LOST_LISTED);
}

bool rfs_by_rules_can_compare(const struct rfs_by_rules *by_rules,
                              const struct rfs_rules_copy *copy)
{
    return !is_incomplete(by_rules, copy->copy) && !is_incomplete(by_rules, copy->original);
}

/* Finds a copy of a source tensor that is incomplete, and so can't be compared with it. */
static uint32_t find_lost_copy(const struct rfs_by_rules *by_rules, uint32_t original)
{
    const struct rfs_rules_map *map = by_rules->map;

    for (size_t i = 0; i < map->copies.n; i++)
        if (map->copies.data[i].original == original &&
            is_incomplete(by_rules, map->copies.data[i].copy))
            return map->copies.data[i].copy;
    return RFS_NO_ID;
}

static uint32_t find_lost_source(const struct rfs_by_rules *by_rules,
                                 const struct rfs_rules_made *made)
{
    uint32_t lost = RFS_NO_ID;

    for (size_t i = 0; i < made->n && lost == RFS_NO_ID; i++) {
        const uint32_t source = by_rules->map->links.data[made->links + i].source;
        if (is_incomplete(by_rules, source))
            lost = source;
        else if (made->compared)
            lost = find_lost_copy(by_rules, source);
    }
    return lost;
}

static int find_lost(struct rfs_by_rules *by_rules, struct rfs_error *err)
{
    const struct rfs_rules_map *map = by_rules->map;

    by_rules->lost = malloc((map->made.n + 1) * sizeof *by_rules->lost);
    if (!by_rules->lost)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < map->made.n; i++)
        by_rules->lost[i] = find_lost_source(by_rules, &map->made.data[i]);
    return 0;
}

const struct rfs_rules_made *rfs_by_rules_made(const struct rfs_by_rules *by_rules, uint32_t name)
{
    const struct rfs_entry *entry = rfs_index_find(by_rules->index, name);

    return entry ? &by_rules->map->made.data[entry - by_rules->index->entries] : NULL;
}

bool rfs_by_rules_is_compared(const struct rfs_by_rules *by_rules, uint32_t name)
{
    const struct rfs_rules_made *made = rfs_by_rules_made(by_rules, name);

    return made && made->compared;
}

bool rfs_by_rules_needs_lost(const struct rfs_by_rules *by_rules, uint32_t name, uint32_t *source)
{
    const struct rfs_rules_made *made = by_rules ? rfs_by_rules_made(by_rules, name) : NULL;

    *source = made ? by_rules->lost[made - by_rules->map->made.data] : RFS_NO_ID;
    return *source != RFS_NO_ID;
}

size_t rfs_by_rules_incomplete(const struct rfs_by_rules *by_rules)
{
    size_t n = 0;

    for (size_t i = 0; i < by_rules->map->made.n; i++)
        n += by_rules->lost[i] != RFS_NO_ID;
    return n;
}

/* Returns a rank that should have the lost part of a source tensor that is not complete. */
static uint32_t lost_rank(const struct rfs_by_rules *by_rules, uint32_t source)
{
    const struct rfs_lacking *lacking = by_rules->config.whole->config.lacking;

    return lacking->from.data[by_rules->plan->params->targets[source].name] - 1;
}

/* Refuses the tensor MADE because SOURCE, from which rules make it, is not complete. */
static int fail_lost(const struct rfs_planner *planner, const char *made, uint32_t source,
                     struct rfs_error *err)
{
    struct rfs_catalog *catalog = planner->config.by_rules->config.catalog;
    const uint32_t rank = lost_rank(planner->config.by_rules, source);

    return rfs_fail(
        err, -ENOENT, RFS_OF(rfs_catalog_path(catalog), made),
        "the checkpoint of that rank; or names=FILE with null for each tensor that is "
        "incomplete",
        "needs '%s', which is incomplete: rank_%u %s, and no other rank is known to "
        "hold the same",
        rfs_catalog_name(catalog, planner->config.by_rules->plan->params->targets[source].name),
        rank, rfs_catalog_has(catalog, rank) ? "does not have its part" : "has no checkpoint");
}

int rfs_by_rules_lose(const struct rfs_planner *planner, uint32_t name, uint32_t source,
                      struct rfs_error *err)
{
    if (planner->config.lost != RFS_LOST_LEFT_OUT)
        return fail_lost(planner, rfs_catalog_name(planner->config.catalog, name), source, err);
    return rfs_plan_lack(planner, name, lost_rank(planner->config.by_rules, source))
               ? rfs_fail_memory(err)
               : 0;
}

int rfs_by_rules_check_lost(const struct rfs_planner *planner, struct rfs_error *err)
{
    const struct rfs_by_rules *by_rules = planner->config.by_rules;
    const struct rfs_rules_map *map = by_rules->map;

    for (size_t i = 0; i < map->made.n; i++)
        if (by_rules->lost[i] != RFS_NO_ID &&
            rfs_names_shown(planner->config.names, map->made.data[i].name))
            return fail_lost(planner, map->made.data[i].name, by_rules->lost[i], err);
    return 0;
}

int rfs_by_rules_new(const struct rfs_by_rules_config *config, struct rfs_by_rules **out,
                     struct rfs_error *err)
{
    RFS_CLEANUP(by_rules_cleanup) struct rfs_by_rules *by_rules = calloc(1, sizeof *by_rules);

    *out = NULL;
    if (!by_rules)
        return rfs_fail_memory(err);
    by_rules->config = *config;
    int rc = rfs_planner_rank(config->whole, 0, &by_rules->plan, err)
            ?: compile(by_rules, err)
            ?: derive(by_rules, err)
            ?: find_lost(by_rules, err);
    if (!rc)
        *out = RFS_STEAL(by_rules);
    return rc;
}

const struct rfs_target *rfs_by_rules_target(const struct rfs_by_rules *by_rules, uint32_t source)
{
    return &by_rules->plan->params->targets[source];
}

int rfs_by_rules_attributes(struct rfs_planning *planning, struct rfs_rank_plan *plan)
{
    const struct rfs_rank_plan *whole = planning->planner->config.by_rules->plan;
    const struct rfs_params *params = plan->params;

    *plan = *whole;
    plan->params = params;
    plan->sources = malloc((whole->n_sources + 1) * sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(planning->err);
    memcpy(plan->sources, whole->sources, whole->n_sources * sizeof *plan->sources);
    return 0;
}
