/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the strategies go with each other and with the rank folders, before a file is read.
 */
#include "plan/internal.h"

#include "base/cleanup.h"
#include "formats/chunks/chunks.h"
#include "formats/formats.h"
#include "layout/grid.h"

/* ---- each other, and the rank folders -------------------------------------------------------- */

static bool is_state(const char *name)
{
    return strncmp(name, "accu_grads", 10) == 0 || strncmp(name, "adam_v", 6) == 0 ||
           strncmp(name, "adam_m", 6) == 0;
}

/*
 * Says whether MindSpore transforms by stage: both strategies have one stage, and the source's
 * parameters, gradients and moments aside, are fewer than the destination's and all among them.
 * (Those that the user leaves out count, too.) It does so with its own files only. Rules have no
 * stages, so this does not apply to them.
 */
static bool transforms_by_stage(const struct rfs_planner *planner)
{
    const struct rfs_strategy *src = planner->config.src;
    const struct rfs_strategy *dst = planner->config.dst;
    size_t n_src = 0;
    size_t n_dst = 0;

    if (!src || !dst || rfs_strategy_stages(src) != 1 || rfs_strategy_stages(dst) != 1 ||
        !rfs_formats[rfs_catalog_format(planner->config.catalog)].by_stage ||
        rfs_strategy_facts(src)->by_rules || rfs_strategy_facts(dst)->by_rules)
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
 * Says whether one whole checkpoint is to be made of a source that is a stage by itself: its
 * strategy is of that stage, not the first, and the tree has more ranks than the strategy.
 */
static bool is_single_stage(const struct rfs_planner *planner)
{
    const struct rfs_strategy *src = planner->config.src;

    return src && !planner->config.dst && rfs_strategy_stages(src) == 1 &&
           rfs_strategy_facts(src)->first_item_stage > 0 &&
           rfs_catalog_ranks(planner->config.catalog) > rfs_strategy_devices(src);
}

static void note_single_stage(const struct rfs_planner *planner)
{
    const uint32_t base = planner->scale.src_base;
    const uint32_t end = base + planner->scale.src_devices;
    bool others = rfs_catalog_ranks(planner->config.catalog) > end;

    for (uint32_t rank = 0; !others && rank < base; rank++)
        others = rfs_catalog_has(planner->config.catalog, rank);
    if (others && rfs_notes_are_new(planner, RFS_NOTE_ONE_STAGE, 0))
        rfs_notes_add(planner, RFS_NOTE_ONE_STAGE, RFS_WARNING,
                      "the source strategy has stage %u alone: only rank_%u to rank_%u are read",
                      planner->first_stage, base, end - 1);
}

bool rfs_plan_looks_swapped(const struct rfs_planner *planner)
{
    const struct rfs_scale *scale = &planner->scale;
    const uint32_t found = rfs_catalog_ranks(planner->config.catalog);

    if (!planner->config.src || !planner->config.dst || planner->by_stage ||
        found != (uint64_t)scale->dst_devices * scale->dst_stages ||
        found == (uint64_t)scale->src_devices * scale->src_stages)
        return false;
    for (uint32_t rank = 0; rank < found; rank++)
        if (!rfs_catalog_has(planner->config.catalog, rank))
            return false;
    return true;
}

/* Sets scale, by_stage and first_stage, and compares the strategies with the folders. */
static int check_strategies(struct rfs_planner *planner, struct rfs_error *err)
{
    const struct rfs_strategy *src = planner->config.src;
    const struct rfs_strategy *dst = planner->config.dst;
    struct rfs_scale *scale = &planner->scale;

    scale->src_devices = src ? rfs_strategy_devices(src) : 1;
    scale->src_stages = src ? rfs_strategy_stages(src) : 1;
    scale->dst_devices = dst ? rfs_strategy_devices(dst) : 1;
    scale->dst_stages = dst ? rfs_strategy_stages(dst) : 1;
    const struct rfs_role_rules rules = rfs_plan_rules(planner);
    const int rc = rfs_role_look_up_all(&rules, &planner->params, err);
    if (rc)
        return rc;
    const bool single_stage = is_single_stage(planner);
    planner->by_stage =
        planner->from ? planner->from->by_stage : single_stage || transforms_by_stage(planner);
    planner->first_stage = planner->by_stage ? rfs_strategy_facts(src)->first_item_stage : 0;

    if (((uint64_t)planner->first_stage + 1) * scale->src_devices > RFS_MAX_DEVICES)
        return rfs_fail(err, -EINVAL, RFS_IN(rfs_strategy_name(src)),
                        "the strategy file that was saved with this checkpoint",
                        "its first strategy item is in stage %u, which with %u devices a stage is "
                        "beyond rank %u",
                        planner->first_stage, scale->src_devices, RFS_MAX_DEVICES - 1);
    scale->src_base = planner->first_stage * scale->src_devices;
    const uint64_t ranks = (uint64_t)scale->src_devices * scale->src_stages;
    if (single_stage)
        note_single_stage(planner);
    const uint32_t found = rfs_catalog_ranks(planner->config.catalog);
    if (!planner->by_stage && found > ranks)
        return rfs_fail(err, -EINVAL, RFS_IN(rfs_catalog_path(planner->config.catalog)),
                        rfs_plan_looks_swapped(planner) ? RFS_PLAN_SWAPPED
                        : src ? "the strategy file that was saved with this checkpoint"
                              : RFS_STRATEGY_WANTED,
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

/* ---- lost ranks ------------------------------------------------------------------------------ */

/*
 * A slice whose ranks are all missing is in no checkpoint, so some destination file could not be
 * made. This is reported before anything is mounted. Costs nothing when no rank is missing.
 */

/*
 * Returns the stage of a parameter that has only one, else RFS_NO_STAGE: other stages may have a
 * copy of a lost one.
 */
static uint32_t only_stage(const struct rfs_strategy *strategy, size_t i)
{
    const uint32_t first = rfs_strategy_next_stage(strategy, i, 0);

    return rfs_strategy_next_stage(strategy, i, first + 1) == RFS_NO_STAGE ? first : RFS_NO_STAGE;
}

/*
 * Returns the first rank of a stage whose slice has no holder left, or RFS_NO_RANK. HELD is
 * scratch.
 */
static uint32_t lost_rank(const struct rfs_planner *planner, const struct rfs_layout *layout,
                          uint32_t base, unsigned char *held)
{
    memset(held, 0, layout->devices);
    for (uint32_t rank = 0; rank < layout->devices; rank++)
        if (rfs_catalog_has(planner->config.catalog, base + rank))
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
    const bool alone = rfs_catalog_present(planner->config.catalog) == 1;

    return rfs_fail(err, -ENOENT, RFS_OF(rfs_catalog_path(planner->config.catalog), param),
                    rfs_plan_looks_swapped(planner) ? RFS_PLAN_SWAPPED
                    : alone                         ? "the folder of all ranks as the source"
                                                    : "the checkpoint of that rank",
                    "rank_%u has no checkpoint, and no other rank that has one holds the "
                    "same slice",
                    rank);
}

/* Parameters that may have lost a slice. */
struct losing {
    const struct rfs_planner *planner;
    unsigned char *held;  /* scratch */
    unsigned char *whole; /* [stages * layouts] no slice of that layout is lost */
};

static void losing_end(struct losing *losing)
{
    free(losing->held);
    free(losing->whole);
}

static int losing_begin(const struct rfs_planner *planner, struct losing *losing)
{
    const size_t n_layouts = rfs_strategy_layouts(planner->config.src);

    *losing = (struct losing){.planner = planner};
    losing->held = malloc(planner->scale.src_devices);
    losing->whole = calloc(n_layouts, planner->scale.src_stages);
    return losing->held && losing->whole ? 0 : -ENOMEM;
}

/* Returns a lost rank whose slice of the strategy's parameter I no other has, or RFS_NO_RANK. */
static uint32_t lost_of(const struct losing *losing, size_t i)
{
    const struct rfs_planner *planner = losing->planner;
    const struct rfs_strategy *src = planner->config.src;
    const uint32_t stage = only_stage(src, i);

    if (stage == RFS_NO_STAGE)
        return RFS_NO_RANK;
    const struct rfs_layout *layout = rfs_strategy_layout(src, i, stage);
    unsigned char *whole = &losing->whole[(size_t)stage * rfs_strategy_layouts(src) + layout->id];
    if (*whole)
        return RFS_NO_RANK;
    const uint32_t rank = lost_rank(planner, layout, rfs_plan_base(planner, stage), losing->held);
    *whole = rank == RFS_NO_RANK;
    return rank;
}

/* Proves that each slice of the source has a rank folder left that holds it. */
static int check_lost(const struct rfs_planner *planner, struct rfs_error *err)
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
        const bool wanted =
            !listed[i] && rfs_names_shown(planner->config.names, rfs_strategy_param(src, i));
        const uint32_t rank = wanted ? lost_of(&losing, i) : RFS_NO_RANK;
        if (rank != RFS_NO_RANK &&
            (!RFS_PUSH(&out->names, rfs_strategy_param(src, i)) || !RFS_PUSH(&out->ranks, rank)))
            return -ENOMEM;
    }
    return 0;
}

/* Finds a tensor that is shown and has a part in a lost file. NULL: there is none. */
static const struct rfs_chunked_tensor *find_incomplete(const struct rfs_planner *planner,
                                                        const struct rfs_chunks *chunks)
{
    for (size_t i = 0; i < chunks->tensors.n; i++) {
        const struct rfs_chunked_tensor *tensor = &chunks->tensors.data[i];
        const char *name = rfs_catalog_name(planner->config.catalog, tensor->name);
        if (tensor->incomplete && rfs_names_shown(planner->config.names, name))
            return tensor;
    }
    return NULL;
}

/* Proves that a checkpoint that describes itself lacks no file of what is shown. */
static int check_chunks(const struct rfs_planner *planner, struct rfs_error *err)
{
    const struct rfs_planner_config *config = &planner->config;
    /* Before conversion rules, names= is of other names. */
    const char *remedy = config->lost == RFS_LOST_LISTED
                             ? "all files of the save; or convert= of an export without what is "
                               "incomplete"
                             : "all files of the save; or names=FILE with null for each parameter "
                               "that is incomplete";
    const struct rfs_chunks *chunks = rfs_catalog_chunks(config->catalog);
    const char *path = rfs_catalog_path(config->catalog);

    if (chunks && chunks->doubt && config->strict)
        return rfs_fail(err, -EINVAL, RFS_IN(path), "a folder whose last save has ended", "%s",
                        chunks->doubt);
    if (!chunks || !chunks->lost)
        return 0;
    const struct rfs_chunked_tensor *lacks = find_incomplete(planner, chunks);
    if (lacks)
        return rfs_fail(err, -ENOENT, RFS_OF(path, rfs_catalog_name(config->catalog, lacks->name)),
                        remedy,
                        "is incomplete: %s missing, by the numbers in the names of the other files",
                        chunks->lost);
    if (config->strict || !rfs_names_leave_out(config->names))
        return rfs_fail(err, -ENOENT, RFS_IN(path), remedy,
                        "%s missing, by the numbers in the names of the other files", chunks->lost);
    if (rfs_notes_are_new(planner, RFS_NOTE_LOST_FILES, 0))
        rfs_notes_add(planner, RFS_NOTE_LOST_FILES, RFS_WARNING,
                      "%s: %s missing: parameters that no other file has are not shown", path,
                      chunks->lost);
    return 0;
}

int rfs_plan_check(struct rfs_planner *planner, struct rfs_error *err)
{
    const struct rfs_planner_config *config = &planner->config;
    int rc = check_strategies(planner, err);

    if (rc == 0 && config->lost == RFS_LOST_REFUSED)
        rc = config->by_rules ? rfs_by_rules_check_lost(planner, err) : check_lost(planner, err);
    return rc ?: check_chunks(planner, err);
}
