/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of the strategy that the lead of a stage lacks. Gradients and moments often are in
 * strategies and not in files; after remove_redundancy another rank has them. So the other ranks
 * that hold the lead's slice are probed: when all of them list the lead's parameters, no rank has
 * that slice.
 *
 * That it is nowhere, and not lost with a rank that kept it, takes more: those that hold another
 * slice are probed too, and where a holder of the lead's slice is lost, or shows another rank's
 * file, all ranks of the stage.
 *
 * A parameter that the network does not cut is held by all ranks of the stage, and to read all
 * headers of 1,024 files of 10,000 parameters takes ten million reads. So no more than PROBES
 * headers are read for this (one in 160 then): files that are of one size, end in the same way and
 * have the same headers in the same places, from the first to the last, are taken to be the same in
 * between. That is no proof: the log names the parameters that are left out because of it. Small
 * stages, those in formats with all headers in one place, and strict ones are looked at in full.
 */
#include "plan/internal.h"

#include "base/cancel.h"
#include "base/cleanup.h"

#define PROBES ((size_t)1 << 16)
#define PROBES_LEAST 32 /* of one file */

struct asking {
    struct planning *planning;
    struct stage_use *use;
    unsigned char *look; /* [src_devices] ranks to be looked at */
    size_t n;            /* how many */
    bool all;            /* all ranks are to be */
    size_t samples;      /* of each file's headers */
    struct note lacking; /* parameters */
};

static void look_at(struct asking *asking, uint32_t rank)
{
    const uint32_t base = asking->use->base;

    if (asking->look[rank] || base + rank == asking->use->lead ||
        !rfs_catalog_has(asking->planning->planner->config.catalog, base + rank))
        return;
    asking->look[rank] = 1;
    asking->n++;
}

/* Whether parameters that RANK kept may be gone. */
static bool is_lost(const struct asking *asking, uint32_t rank)
{
    const struct rfs_catalog *catalog = asking->planning->planner->config.catalog;
    const uint32_t global = asking->use->base + rank;

    return !rfs_catalog_has(catalog, global) || rfs_catalog_stands_in(catalog, global);
}

/*
 * The ranks that hold the lead's slice by LAYOUT, and if that is not the lead alone, those of
 * another slice.
 */
static void add_replicas(struct asking *asking, const struct rfs_layout *layout)
{
    const uint32_t lead = asking->use->lead - asking->use->base;
    const uint32_t slice = rfs_layout_slice(layout, lead);
    uint32_t other = slice;
    bool alone = true;

    for (uint32_t rank = 0; rank < layout->devices; rank++) {
        const uint32_t held = rfs_layout_slice(layout, rank);
        if (held != slice) {
            other = other == slice ? held : other;
            continue;
        }
        alone = alone && rank == lead;
        asking->all = asking->all || is_lost(asking, rank);
        look_at(asking, rank);
    }
    for (uint32_t rank = 0; !alone && other != slice && rank < layout->devices; rank++)
        if (rfs_layout_slice(layout, rank) == other)
            look_at(asking, rank);
}

/* Marks the parameters of the source strategy that an index lists. */
static void mark_listed(const struct rfs_planner *planner, const struct rfs_index *index,
                        unsigned char *listed)
{
    for (size_t i = 0; i < index->n; i++) {
        const uint32_t at = rfs_plan_name(planner, index->entries[i].name).src;
        if (at != RFS_NO_ID)
            listed[at] = 1;
    }
}

static int find_lacking(struct asking *asking, uint32_t s)
{
    struct planning *planning = asking->planning;
    const struct rfs_planner *planner = planning->planner;
    const struct rfs_strategy *src = planner->config.src;
    RFS_FREE unsigned char *listed = calloc(rfs_strategy_count(src) + 1, 1);
    RFS_FREE unsigned char *added = calloc(rfs_strategy_layouts(src) + 1, 1);

    if (!listed || !added)
        return rfs_fail_memory(planning->err);
    mark_listed(planner, asking->use->lead_index, listed);
    for (size_t i = 0; i < rfs_strategy_count(src); i++) {
        const struct rfs_layout *layout = listed[i] ? NULL : rfs_strategy_layout(src, i, s);
        const char *param = rfs_strategy_param(src, i);
        if (!layout)
            continue;
        const struct rfs_role role = rfs_plan_role_of_param(planner, i, s, planning->stage);
        if (role.kind == RFS_ROLE_DROPPED)
            continue;
        if (role.shown && !rfs_plan_is_gradient(param))
            rfs_plan_note(&asking->lacking, param);
        if (!added[layout->id])
            add_replicas(asking, layout);
        added[layout->id] = 1;
    }
    asking->use->bereft = asking->all && asking->lacking.n > 0;
    for (uint32_t rank = 0; asking->all && rank < planner->scale.src_devices; rank++)
        look_at(asking, rank);
    return 0;
}

/* Samples a rank, and has all of its headers read when they do not look like the lead's. */
static int probe(void *ctx, size_t i)
{
    struct asking *asking = ctx;
    struct rfs_planner *planner = asking->planning->planner;
    struct stage_use *use = asking->use;
    const uint32_t rank = use->base + (uint32_t)i;
    atomic_uint_least64_t *known = &planner->resembled[rank - rfs_plan_base(planner, 0)];

    if (!asking->look[i] || use->wanted[i] ||
        atomic_load_explicit(known, memory_order_relaxed) == use->lead_index->serial)
        return 0;
    if (!rfs_catalog_ready(planner->config.catalog, rank) &&
        rfs_catalog_resembles(planner->config.catalog, rank, use->lead, asking->samples) == 1)
        atomic_store_explicit(known, use->lead_index->serial, memory_order_relaxed);
    else
        use->wanted[i] = PROBED; /* which also reports a failure */
    return 0;
}

/* Once for each stage. */
static void report(struct rfs_planner *planner, const struct note *lacking, uint32_t s)
{
    if (lacking->n > 0 && !atomic_exchange(&planner->sampled[s], true))
        rfs_log(planner->config.log, RFS_INFO,
                "%zu parameter%s of the source strategy in none of the checkpoints of pipeline "
                "stage %u, by samples of their headers: %s",
                lacking->n, lacking->n == 1 ? "" : "s", s, lacking->names);
}

int rfs_plan_probe(struct planning *planning, uint32_t s)
{
    struct rfs_planner *planner = planning->planner;
    const uint32_t devices = planner->scale.src_devices;
    struct asking asking = {.planning = planning, .use = &planning->stages[s]};

    if (asking.use->presence || !planner->config.src || devices == 1)
        return 0;
    RFS_FREE unsigned char *look = calloc(devices, 1);
    if (!look)
        return rfs_fail_memory(planning->err);
    asking.look = look;
    const int rc = find_lacking(&asking, s);
    if (rc || asking.n == 0)
        return rc;
    asking.samples = PROBES / asking.n > PROBES_LEAST ? PROBES / asking.n : PROBES_LEAST;
    if (!planner->config.strict && asking.samples < asking.use->lead_index->n) {
        rfs_pool_for(planner->config.pool, devices, probe, &asking);
        if (rfs_cancelled())
            return -EINTR;
        report(planner, &asking.lacking, s);
        return 0;
    }
    for (uint32_t rank = 0; rank < devices; rank++)
        asking.use->wanted[rank] |= look[rank] ? PROBED : 0;
    return 0;
}
