/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lost ranks, as far as the strategies and the folders show: a slice whose ranks are all missing is
 * in no checkpoint, so some destination file could not be made. This is reported before anything is
 * mounted. Costs nothing when no rank is missing.
 */
#include "plan/internal.h"

#include "base/cleanup.h"
#include "formats/chunks/chunks.h"
#include "layout/grid.h"

/*
 * The stage of a parameter that has only one, else RFS_NO_STAGE: the others may have a copy of a
 * lost one.
 */
static uint32_t only_stage(const struct rfs_strategy *strategy, size_t i)
{
    const uint32_t first = rfs_strategy_next_stage(strategy, i, 0);

    return rfs_strategy_next_stage(strategy, i, first + 1) == RFS_NO_STAGE ? first : RFS_NO_STAGE;
}

/* The first rank of the stage whose slice has no holder left, or RFS_NO_RANK. HELD is scratch. */
static uint32_t lost_rank(const struct rfs_planner *planner, const struct rfs_layout *layout,
                          uint32_t base, unsigned char *held)
{
    const struct rfs_catalog *catalog = planner->config.catalog;

    memset(held, 0, layout->devices);
    for (uint32_t rank = 0; rank < layout->devices; rank++)
        if (rfs_catalog_has(catalog, base + rank))
            held[rfs_layout_slice(layout, rank)] = 1;
    for (uint32_t rank = 0; rank < layout->devices; rank++)
        if (!held[rfs_layout_slice(layout, rank)])
            return base + rank;
    return RFS_NO_RANK;
}

static bool any_missing(const struct rfs_planner *planner)
{
    const uint32_t base = rfs_plan_base(planner, 0);
    const uint32_t end =
        rfs_plan_base(planner, planner->scale.src_stages - 1) + planner->scale.src_devices;

    for (uint32_t rank = base; rank < end; rank++)
        if (!rfs_catalog_has(planner->config.catalog, rank))
            return true;
    return false;
}

int rfs_plan_fail_lost(const struct rfs_planner *planner, const char *param, uint32_t rank,
                       struct rfs_error *err)
{
    return rfs_fail(err, -ENOENT, RFS_OF(rfs_catalog_path(planner->config.catalog), param),
                    rfs_plan_looks_swapped(planner) ? RFS_PLAN_SWAPPED
                                                    : "the checkpoint of that rank",
                    "rank_%u has no checkpoint, and no other rank that has one holds the "
                    "same slice",
                    rank);
}

/* Parameters that may have lost a slice. */
struct losing {
    const struct rfs_planner *planner;
    unsigned char *held; /* scratch */
    unsigned char *kept; /* [stages * layouts] no slice of that layout is lost */
};

static void losing_end(struct losing *losing)
{
    free(losing->held);
    free(losing->kept);
}

static int losing_begin(const struct rfs_planner *planner, struct losing *losing)
{
    const size_t n_layouts = rfs_strategy_layouts(planner->config.src);

    *losing = (struct losing){.planner = planner};
    losing->held = malloc(planner->scale.src_devices);
    losing->kept = calloc(n_layouts, planner->scale.src_stages);
    return losing->held && losing->kept ? 0 : -ENOMEM;
}

/* The rank whose slice of the strategy's parameter I no other has, or RFS_NO_RANK. */
static uint32_t lost_of(const struct losing *losing, size_t i)
{
    const struct rfs_planner *planner = losing->planner;
    const struct rfs_strategy *src = planner->config.src;
    const uint32_t stage = only_stage(src, i);

    if (stage == RFS_NO_STAGE)
        return RFS_NO_RANK;
    const struct rfs_layout *layout = rfs_strategy_layout(src, i, stage);
    unsigned char *kept = &losing->kept[(size_t)stage * rfs_strategy_layouts(src) + layout->id];
    if (*kept)
        return RFS_NO_RANK;
    const uint32_t rank = lost_rank(planner, layout, rfs_plan_base(planner, stage), losing->held);
    *kept = rank == RFS_NO_RANK;
    return rank;
}

int rfs_plan_check_lost(const struct rfs_planner *planner, struct rfs_error *err)
{
    const struct rfs_strategy *src = planner->config.src;
    RFS_CLEANUP(losing_end) struct losing losing = {.held = NULL};

    if (!src || !any_missing(planner))
        return 0;
    if (losing_begin(planner, &losing))
        return rfs_fail_memory(err);
    for (size_t i = 0; i < rfs_strategy_count(src); i++) {
        const struct rfs_role_name *name = &planner->params[i];
        if (!name->shown || (planner->config.dst && name->dst == RFS_NO_ID))
            continue;
        const uint32_t rank = lost_of(&losing, i);
        if (rank != RFS_NO_RANK)
            return rfs_plan_fail_lost(planner, rfs_strategy_param(src, i), rank, err);
    }
    return 0;
}

void rfs_plan_vanished_end(struct rfs_vanished *vanished)
{
    free(vanished->names.data);
    free(vanished->ranks.data);
}

int rfs_plan_find_vanished(const struct rfs_planner *planner, const struct rfs_params *params,
                           struct rfs_vanished *out)
{
    const struct rfs_strategy *src = planner->config.src;
    RFS_CLEANUP(losing_end) struct losing losing = {.held = NULL};

    if (!src || !any_missing(planner))
        return 0;
    RFS_FREE unsigned char *listed = calloc(rfs_strategy_count(src) + 1, 1);
    if (!listed || losing_begin(planner, &losing))
        return -ENOMEM;
    for (size_t i = 0; i < params->n; i++) {
        const uint32_t at = rfs_plan_name(planner, params->targets[i].name).src;
        if (at != RFS_NO_ID)
            listed[at] = 1;
    }
    for (size_t i = 0; i < rfs_strategy_count(src); i++) {
        const uint32_t rank = listed[i] ? RFS_NO_RANK : lost_of(&losing, i);
        if (rank != RFS_NO_RANK &&
            (!RFS_PUSH(&out->names, rfs_strategy_param(src, i)) || !RFS_PUSH(&out->ranks, rank)))
            return -ENOMEM;
    }
    return 0;
}

/* Finds a tensor that is shown and has a part in a lost file. NULL: there is none. */
static const struct rfs_chunked_tensor *find_incomplete(const struct rfs_planner *planner,
                                                        const struct rfs_chunks *boxes)
{
    for (size_t i = 0; i < boxes->tensors.n; i++) {
        const struct rfs_chunked_tensor *tensor = &boxes->tensors.data[i];
        const char *name = rfs_catalog_name(planner->config.catalog, tensor->name);
        if (tensor->incomplete && rfs_output_map_name(planner->config.output_map, name))
            return tensor;
    }
    return NULL;
}

int rfs_plan_check_chunks(const struct rfs_planner *planner, struct rfs_error *err)
{
    const struct rfs_planner_config *config = &planner->config;
    /* Before conversion rules, names= is of other names. */
    const char *remedy = config->incomplete
                             ? "all files of the save; or convert= of an export without what is "
                               "incomplete"
                             : "all files of the save; or names=FILE with null for each parameter "
                               "that is incomplete";
    const struct rfs_chunks *boxes = rfs_catalog_chunks(config->catalog);
    const char *path = rfs_catalog_path(config->catalog);

    if (boxes && boxes->doubt && config->strict)
        return rfs_fail(err, -EINVAL, RFS_IN(path), "a folder whose last save has ended", "%s",
                        boxes->doubt);
    if (!boxes || !boxes->lost)
        return 0;
    const struct rfs_chunked_tensor *lacks = find_incomplete(planner, boxes);
    if (lacks)
        return rfs_fail(err, -ENOENT, RFS_OF(path, rfs_catalog_name(config->catalog, lacks->name)),
                        remedy,
                        "is incomplete: %s missing, by the numbers in the names of the other files",
                        boxes->lost);
    if (config->strict || !rfs_output_map_has_names(config->output_map))
        return rfs_fail(err, -ENOENT, RFS_IN(path), remedy,
                        "%s missing, by the numbers in the names of the other files", boxes->lost);
    if (!config->template)
        rfs_log(config->log, RFS_WARNING,
                "%s: %s missing: parameters that no other file has are not shown", path,
                boxes->lost);
    return 0;
}
