/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/boxed.h"

#include "base/cancel.h"
#include "base/cleanup.h"

#include <assert.h>

static void plan_free(struct rfs_rank_plan **plan)
{
    if (*plan)
        free((*plan)->sources);
    free(*plan);
}

void rfs_planner_free(struct rfs_planner *planner)
{
    if (!planner)
        return;
    for (uint32_t i = 0; planner->ranks && i < planner->n_ranks; i++) {
        struct rfs_rank_plan *plan = atomic_load_explicit(&planner->ranks[i], memory_order_relaxed);
        plan_free(&plan);
    }
    free(planner->ranks);
    free(planner->params);
    rfs_plan_names_free(planner->names);
    free(planner->lost);
    free(planner->leads);
    for (uint32_t s = 0; planner->presences && s < planner->scale.src_stages; s++)
        rfs_presence_free(atomic_load_explicit(&planner->presences[s], memory_order_relaxed));
    free(planner->presences);
    free(planner->sizes);
    free(planner->reported_presence);
    free(planner->reported_damaged);
    free(planner->resembled);
    free(planner->sampled);
    for (size_t i = 0; i < planner->geometries.n; i++)
        free(planner->geometries.data[i].geometry);
    free(planner->geometries.data);
    free(planner->reported.data);
    free(planner->geometry_table);
    for (size_t i = 0; i < planner->param_lists.n; i++)
        free(planner->param_lists.data[i]);
    free(planner->param_lists.data);
    pthread_mutex_destroy(&planner->lock);
    free(planner);
}

RFS_CLEANUP_OF(planner_cleanup, struct rfs_planner *, rfs_planner_free)

static int make_tables(struct rfs_planner *planner)
{
    const size_t stages = planner->scale.src_stages;
    const size_t ranks = stages * planner->scale.src_devices;

    planner->names = rfs_plan_names_new();
    planner->ranks = calloc(planner->n_ranks, sizeof *planner->ranks);
    planner->lost = calloc(ranks, sizeof *planner->lost);
    planner->resembled = calloc(ranks, sizeof *planner->resembled);
    planner->leads = calloc(stages, sizeof *planner->leads);
    planner->presences = calloc(stages, sizeof *planner->presences);
    planner->sizes = calloc(stages, sizeof *planner->sizes);
    planner->sampled = calloc(stages, sizeof *planner->sampled);
    planner->reported_presence = calloc(stages, sizeof *planner->reported_presence);
    planner->reported_damaged = calloc(stages, sizeof *planner->reported_damaged);
    return planner->names && planner->ranks && planner->lost && planner->resembled &&
                   planner->leads && planner->presences && planner->sizes && planner->sampled &&
                   planner->reported_presence && planner->reported_damaged
               ? 0
               : -ENOMEM;
}

int rfs_planner_new(const struct rfs_planner_config *config, struct rfs_planner **out,
                    struct rfs_error *err)
{
    RFS_CLEANUP(planner_cleanup) struct rfs_planner *planner = calloc(1, sizeof *planner);

    *out = NULL;
    if (!planner)
        return rfs_fail_memory(err);
    assert(rfs_catalog_is_derived(config->catalog) == (config->converted != NULL));
    assert(!config->lacking || !config->incomplete);
    planner->config = *config;
    pthread_mutex_init(&planner->lock, NULL);
    if (config->src && rfs_catalog_chunks(config->catalog))
        return rfs_fail_usage(err, "leave src_strategy and src_rules out", RFS_PLAN_DESCRIBED);
    int rc = rfs_plan_check_strategies(planner, err);
    if (!rc && !config->late && !config->lacking && !config->incomplete)
        rc = config->converted ? rfs_plan_check_made(planner, err)
                               : rfs_plan_check_lost(planner, err);
    if (!rc)
        rc = rfs_plan_check_chunks(planner, err);
    if (rc)
        return rc;
    rc = make_tables(planner);
    if (rc)
        return rfs_fail_memory(err);
    for (uint32_t s = 0; s < planner->scale.src_stages; s++)
        atomic_init(&planner->leads[s], RFS_NO_RANK);
    *out = RFS_STEAL(planner);
    return 0;
}

void rfs_planner_scale(const struct rfs_planner *planner, struct rfs_scale *out)
{
    *out = planner->scale;
}

int64_t rfs_planner_part(const struct rfs_planner *planner)
{
    return planner->part ? (int64_t)planner->first_stage : -1;
}

int rfs_planning_begin(struct rfs_planner *planner, uint32_t rank, struct planning *planning,
                       struct rfs_error *err)
{
    const struct rfs_scale *scale = &planner->scale;

    *planning = (struct planning){
        .planner = planner,
        .rank = rank,
        .stage = rank / scale->dst_devices,
        .local = rank % scale->dst_devices,
        .template = rank % scale->dst_devices % scale->src_devices,
        .err = err,
        .n_stages = scale->src_stages,
    };
    planning->stages = calloc(planning->n_stages, sizeof *planning->stages);
    return planning->stages ? 0 : rfs_fail_memory(err);
}

void rfs_planning_end(struct planning *planning)
{
    for (uint32_t s = 0; planning->stages && s < planning->n_stages; s++) {
        free(planning->stages[s].wanted);
        free(planning->stages[s].damage);
    }
    free(planning->stages);
    free(planning->unproved.data);
    free(planning->seen.data);
    free(planning->origins);
}

static int make_plan(struct planning *planning, struct rfs_rank_plan *plan)
{
    int rc = rfs_plan_sources(planning);
    if (!rc)
        rc = rfs_plan_check_match(planning);
    if (!rc)
        rc = rfs_plan_params(planning, &plan->params);
    if (!rc)
        rc = planning->planner->config.converted ? rfs_plan_converted_attributes(planning, plan)
             : rfs_catalog_chunks(planning->planner->config.catalog)
                 ? rfs_plan_chunked_attributes(planning, plan)
                 : rfs_plan_attributes(planning, plan);
    return !rc && rfs_cancelled() ? -EINTR : rc;
}

int rfs_planner_rank(struct rfs_planner *planner, uint32_t rank, const struct rfs_rank_plan **out,
                     struct rfs_error *err)
{
    RFS_CLEANUP(rfs_planning_end) struct planning planning = {.planner = planner};

    *out = rfs_planner_ready(planner, rank);
    if (*out)
        return 0;
    if (rfs_planning_begin(planner, rank, &planning, err))
        return -ENOMEM;
    RFS_CLEANUP(plan_free) struct rfs_rank_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return rfs_fail_memory(err);
    struct rfs_use use;
    rfs_catalog_begin(planner->config.catalog, &use);
    const int rc = make_plan(&planning, plan);
    rfs_catalog_end(planner->config.catalog, &use);
    if (rc)
        return rc;

    struct rfs_rank_plan *expected = NULL;
    if (atomic_compare_exchange_strong(&planner->ranks[rank], &expected, plan))
        expected = RFS_STEAL(plan);
    rfs_output_map_report(planner->config.output_map, planner->config.log);
    *out = expected; /* ours, or the equal one of a thread that was faster */
    return 0;
}

const struct rfs_rank_plan *rfs_planner_ready(const struct rfs_planner *planner, uint32_t rank)
{
    return atomic_load_explicit(&planner->ranks[rank], memory_order_acquire);
}

const struct rfs_geometry *rfs_planner_geometry(struct rfs_planner *planner,
                                                const struct rfs_target *target)
{
    return target->geometry == RFS_NO_ID ? NULL : rfs_plan_geometry_at(planner, target->geometry);
}
