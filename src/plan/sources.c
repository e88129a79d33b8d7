/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which source ranks a destination rank needs, and their headers.
 *
 * Of each needed stage one rank leads: its headers have the types, the types and the strategies
 * give the geometries, and those give the other ranks. Their headers are then read in parallel,
 * predicted from the lead's, and must list the same parameters with the same types as the lead's: a
 * slice of another size or a parameter that is not there would be a hole in the destination.
 *
 * After remove_redundancy the files of a stage list different parameters. So
 *
 * - a parameter of the strategy that the lead lacks is believed to be nowhere in the stage only
 *   when the other ranks that hold the lead's slice of it lack it too: probe.c looks at them.
 * - when not all files that are looked at list the same (one may list nothing), or one says that
 *   redundancy was removed, or the files of the stage are not all of one size (sizes.c), those of
 *   all its ranks are looked at, once for all destination ranks, and a presence map (presence.h)
 *   says which rank has which parameter.
 *
 * When the lead has all that the strategy knows and the ranks that give something list the same, no
 * other file has to be looked at: they have each slice that is needed. (Parameters that no strategy
 * knows counts only when a rank has it that is looked at, as with MindSpore, which loads no other.)
 *
 * All this depends on the files and on the destination rank, never on which ranks were planned
 * before.
 */
#include "plan/internal.h"

#include "base/cleanup.h"
#include "base/first_error.h"

const char *rfs_plan_path(const struct planning *planning, uint32_t rank)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    return rfs_files_path(rfs_catalog_files(catalog), rfs_catalog_file(catalog, rank));
}

/*
 * The rank that leads its stage: the one that MindSpore takes this rank for, or the highest there
 * is.
 */
static uint32_t choose_lead(const struct planning *planning, uint32_t base)
{
    const struct rfs_catalog *catalog = planning->planner->config.catalog;
    uint32_t local = planning->planner->scale.src_devices;

    if (rfs_catalog_has(catalog, base + planning->template))
        return base + planning->template;
    while (local-- > 0)
        if (rfs_catalog_has(catalog, base + local))
            return base + local;
    return RFS_NO_RANK;
}

/*
 * Notes a file that cannot be read, where the plan may go without: 0; else the file's error, or
 * -ENOMEM.
 */
static int pass_over(const struct rfs_planner *planner, uint32_t rank, int rc)
{
    if (rc == 0 || rc == -ENOMEM || rc == -EINTR || !planner->config.lacking)
        return rc;
    return rfs_plan_lack_file(planner, rank);
}

/*
 * A stage without any readable file, for the reason WHY: a plan may go without, unless it is the
 * last.
 */
static int lose_stage(struct planning *planning, uint32_t s, const struct rfs_error *why)
{
    bool last = true;

    for (uint32_t other = 0; other < planning->n_stages; other++)
        last = last && (other == s || !planning->stages[other].needed);
    if (last || !planning->planner->config.lacking) {
        if (planning->err)
            *planning->err = *why;
        return why->code;
    }
    planning->stages[s].needed = false;
    planning->stages[s].differs = false;
    return rfs_plan_lack_stage(planning, s) ? rfs_fail_memory(planning->err) : 0;
}

/* The headers of the rank that leads a stage, which is chosen already. */
static int index_lead(struct planning *planning, uint32_t s, struct rfs_error *err)
{
    struct rfs_planner *planner = planning->planner;
    struct stage_use *use = &planning->stages[s];
    uint32_t first = atomic_load(&planner->leads[s]);
    const int rc =
        rfs_catalog_index(planner->config.catalog, use->lead, first, &use->lead_index, err);

    if (!rc && first == RFS_NO_RANK)
        atomic_compare_exchange_strong(&planner->leads[s], &first, use->lead);
    return rc;
}

static int lead_stage(struct planning *planning, uint32_t s)
{
    struct rfs_planner *planner = planning->planner;
    struct stage_use *use = &planning->stages[s];

    use->base = rfs_plan_base(planner, s);
    use->wanted = calloc(planner->scale.src_devices, 1);
    if (!use->wanted)
        return rfs_fail_memory(planning->err);
    use->lead = choose_lead(planning, use->base);
    struct rfs_error err = {0};
    if (use->lead == RFS_NO_RANK) {
        rfs_fail(&err, -ENOENT, RFS_IN(rfs_catalog_path(planner->config.catalog)),
                 rfs_plan_looks_swapped(planner) ? RFS_PLAN_SWAPPED
                                                 : "the rank folders of this stage",
                 "rank_%u to rank_%u, pipeline stage %u, are all missing", use->base,
                 use->base + planner->scale.src_devices - 1, s);
        return lose_stage(planning, s, &err);
    }
    const int rc = index_lead(planning, s, &err);
    const bool empty = rc && rfs_catalog_is_empty(planner->config.catalog, use->lead);
    const int fatal = empty ? 0 : pass_over(planner, use->lead, rc);
    if (fatal && planning->err)
        *planning->err = err;
    if (fatal)
        return fatal;
    if (planner->scale.src_devices == 1)
        return rc ? lose_stage(planning, s, &err) : 0;
    use->differs = rc || use->lead_index->redundancy_removed;
    use->hinted = !use->differs && rfs_plan_sizes_differ(planner, s);
    use->differs |= use->hinted;
    return 0;
}

static int find_origins(struct planning *planning)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;

    free(planning->origins);
    planning->n_names = rfs_intern_count(rfs_catalog_tables(catalog)->names);
    planning->origins = malloc(planning->n_names * sizeof *planning->origins + 1);
    if (!planning->origins)
        return rfs_fail_memory(planning->err);
    for (uint32_t i = 0; i < planning->n_names; i++)
        planning->origins[i] = (struct origin){RFS_NO_STAGE, RFS_NO_ID, RFS_NO_ID};
    for (uint32_t s = planning->n_stages; s-- > 0;) {
        const struct stage_use *use = &planning->stages[s];
        if (!use->needed)
            continue;
        for (size_t i = 0; use->presence && i < use->presence->n; i++) {
            const uint32_t name = use->presence->order[i];
            planning->origins[name] = (struct origin){s, use->presence->of[name].type, RFS_NO_ID};
        }
        for (size_t i = 0; !use->presence && i < use->lead_index->n; i++) {
            const struct rfs_entry *entry = &use->lead_index->entries[i];
            planning->origins[entry->name] = (struct origin){s, entry->type, RFS_NO_ID};
        }
    }
    return 0;
}

static int need_stage(struct planning *planning, uint32_t s)
{
    const int rc = rfs_plan_need(planning, s);
    return rc ? rc : rfs_plan_probe(planning, s);
}

/* The job of indexing many ranks at once. */
struct indexing {
    struct planning *planning;
    struct stage_use *use;
    bool all; /* none may be damaged; else only those that give something */
    const uint32_t *ranks;
    atomic_bool empty;    /* a rank's file holds nothing */
    pthread_mutex_t lock; /* of use->damage, and of the planner's lacking; a leaf lock */
    struct rfs_first_error first;
};

/* Remembers a file's error, to be logged if the plan is made without it. */
static void note_damage(struct stage_use *use, const struct rfs_error *err)
{
    if (!use->damage)
        use->damage = strdup(err ? err->text : "one of its files");
}

static int index_one(void *ctx, size_t i)
{
    struct indexing *job = ctx;
    struct rfs_error err = {0};
    const struct rfs_index *index;
    const int rc = rfs_catalog_index(job->planning->planner->config.catalog, job->ranks[i],
                                     job->use->lead, &index, &err);
    if (rc && rfs_catalog_is_empty(job->planning->planner->config.catalog, job->ranks[i])) {
        atomic_store(&job->empty, true);
        return 0;
    }
    const struct rfs_planner *planner = job->planning->planner;
    pthread_mutex_lock(&job->lock);
    const int passed = rc ? pass_over(planner, job->ranks[i], rc) : 0;
    pthread_mutex_unlock(&job->lock);
    if (rc && passed == 0) {
        atomic_store(&job->empty, true); /* a rank that holds the same provides it */
        return 0;
    }
    if (rc == -EINVAL && !job->all &&
        !(job->use->wanted[job->ranks[i] - job->use->base] & PROVIDES)) {
        pthread_mutex_lock(&job->lock);
        note_damage(job->use, &err);
        pthread_mutex_unlock(&job->lock);
        return 0;
    }
    return rfs_first_error_note(&job->first, rc, &err);
}

static int index_ranks(struct planning *planning, uint32_t s, bool all)
{
    struct stage_use *use = &planning->stages[s];
    const uint32_t devices = planning->planner->scale.src_devices;
    RFS_FREE uint32_t *ranks = malloc(devices * sizeof *ranks);
    size_t n = 0;

    if (!ranks)
        return rfs_fail_memory(planning->err);
    for (uint32_t local = 0; local < devices; local++)
        if (use->wanted[local] &&
            !rfs_catalog_ready(planning->planner->config.catalog, use->base + local))
            ranks[n++] = use->base + local;
    if (n == 0)
        return 0;
    struct indexing job = {.planning = planning,
                           .use = use,
                           .all = all,
                           .ranks = ranks,
                           .lock = PTHREAD_MUTEX_INITIALIZER,
                           .first = RFS_FIRST_ERROR};
    const int rc = rfs_pool_for(planning->planner->config.pool, n, index_one, &job);
    use->differs |= atomic_load(&job.empty);
    return rc == -EINTR ? rc : rfs_first_error_take(&job.first, rc, planning->err);
}

static int index_stage(struct planning *planning, uint32_t s)
{
    return index_ranks(planning, s, false);
}

/* Whether two files list the same parameters, in whatever order. */
static bool same_names(const struct rfs_index *a, const struct rfs_index *b)
{
    bool same = a->n == b->n;

    for (size_t i = 0; same && i < a->n; i++)
        same = a->entries[a->by_name[i]].name == b->entries[b->by_name[i]].name;
    return same;
}

/*
 * Proves that parameters that are cut have the same type in a rank as in the lead, which lists the
 * same.
 */
static int compare_types(const struct planning *planning, const struct stage_use *use, uint32_t s,
                         uint32_t rank, const struct rfs_index *index)
{
    const struct rfs_index *lead = use->lead_index;

    for (size_t i = 0; i < lead->n; i++) {
        const struct rfs_entry *here = &index->entries[index->by_name[i]];
        if (here->type == lead->entries[lead->by_name[i]].type)
            continue;
        const struct rfs_role role =
            rfs_plan_role(planning->planner, here->name, s, planning->stage);
        if (role.kind == RFS_ROLE_SLICED && role.shown &&
            !(role.src && role.src->edge)) /* rows.c checks those */
            return rfs_plan_types_differ(planning, here->name, rank, use->lead);
    }
    return 0;
}

static int compare_stage(struct planning *planning, uint32_t s)
{
    const struct rfs_planner *planner = planning->planner;
    struct stage_use *use = &planning->stages[s];
    const struct rfs_index *proved = use->lead_index;

    use->order = NULL;
    for (uint32_t local = 0; !use->presence && local < planner->scale.src_devices; local++) {
        if (!use->wanted[local])
            continue;
        const struct rfs_index *index =
            rfs_catalog_ready(planner->config.catalog, use->base + local);
        if (!index)
            continue; /* damaged, or it keeps nothing, which differs shows */
        const bool provides = use->wanted[local] & PROVIDES;
        if (use->wanted[local] & (PROVIDES | ORDERS) && (!use->order || !planner->part))
            use->order = index; /* loaded first: the highest rank, or the lowest of a part */
        if (index == proved || index == use->lead_index)
            continue;
        use->differs |= !same_names(use->lead_index, index) || index->redundancy_removed;
        if (use->differs)
            return 0;
        const int rc = provides ? compare_types(planning, use, s, use->base + local, index) : 0;
        if (rc)
            return rc;
        proved = provides ? index : proved;
    }
    return 0;
}

/* Takes one step for each needed stage. */
static int each_stage(struct planning *planning, int (*step)(struct planning *planning, uint32_t s))
{
    int rc = 0;

    for (uint32_t s = 0; !rc && s < planning->n_stages; s++)
        if (planning->stages[s].needed)
            rc = step(planning, s);
    return rc;
}

/*
 * Gives the presence map that belongs to the planner from now on: FRESH, or one that another thread
 * made.
 */
static const struct rfs_presence *share_presence(struct rfs_planner *planner, uint32_t s,
                                                 struct rfs_presence *fresh)
{
    struct rfs_presence *shared = NULL;

    if (atomic_compare_exchange_strong(&planner->presences[s], &shared, fresh))
        return fresh;
    rfs_presence_free(fresh);
    return shared;
}

static int make_presence(struct planning *planning, uint32_t s)
{
    struct rfs_planner *planner = planning->planner;
    struct stage_use *use = &planning->stages[s];
    struct rfs_presence *fresh;

    for (uint32_t local = 0; local < planner->scale.src_devices; local++)
        use->wanted[local] = rfs_catalog_has(planner->config.catalog, use->base + local);
    const int rc = index_ranks(planning, s, true);
    if (rc)
        return rc;
    if (rfs_presence_make(planner->config.catalog, use->base, planner->scale.src_devices,
                          planner->part, &fresh))
        return rfs_fail_memory(planning->err);
    use->presence = share_presence(planner, s, fresh);
    return 0;
}

/*
 * A damaged file, too, has another size than the rest. Ranks that need nothing of it are not to
 * suffer: they go by the files that they need, which are compared as ever.
 */
static int go_without_presence(struct planning *planning, uint32_t s, int rc)
{
    struct stage_use *use = &planning->stages[s];

    if (rc != -EINVAL || !use->hinted)
        return rc;
    note_damage(use, planning->err);
    if (planning->err)
        *planning->err = (struct rfs_error){0};
    use->differs = false;
    use->hinted = false;
    return 0;
}

/* Makes the presence map of a stage whose files differ, or takes the one that was made before. */
static int presence_stage(struct planning *planning, uint32_t s)
{
    struct rfs_planner *planner = planning->planner;
    struct stage_use *use = &planning->stages[s];

    if (!use->differs || use->presence)
        return 0;
    use->presence = atomic_load_explicit(&planner->presences[s], memory_order_acquire);
    const int rc = use->presence ? 0 : make_presence(planning, s);
    if (rc)
        return go_without_presence(planning, s, rc);
    if (use->presence->n > 0)
        return 0;
    struct rfs_error err = {0}; /* all are empty or damaged: the error of one of them */
    rfs_catalog_index(planner->config.catalog, use->lead, RFS_NO_RANK, &use->lead_index, &err);
    return lose_stage(planning, s, &err);
}

static bool any_to_presence(const struct planning *planning)
{
    for (uint32_t s = 0; s < planning->n_stages; s++)
        if (planning->stages[s].differs && !planning->stages[s].presence)
            return true;
    return false;
}

/* Once everything is proved: failures report themselves. */
static int report_stage(struct planning *planning, uint32_t s)
{
    struct rfs_planner *planner = planning->planner;
    const struct stage_use *use = &planning->stages[s];

    if (use->damage && !atomic_exchange(&planner->reported_damaged[s], true))
        rfs_log(planner->config.log, RFS_WARNING,
                "pipeline stage %u has a damaged checkpoint: parameters in that one alone are left "
                "out: %s",
                s, use->damage);

    const struct rfs_lacking *lacking = planner->config.lacking; /* its owner reports */
    if ((use->presence || use->bereft) && !(lacking && lacking->damaged.n > 0) &&
        !atomic_exchange(&planner->reported_presence[s], true))
        rfs_plan_report_presence(planner, use, s);
    return 0;
}

int rfs_plan_leads(struct planning *planning)
{
    rfs_plan_needed_stages(planning->planner, planning->stage, planning->stages);
    for (uint32_t s = 0; s < planning->n_stages; s++) {
        struct stage_use *use = &planning->stages[s];
        if (!use->needed)
            continue;
        use->base = rfs_plan_base(planning->planner, s);
        use->lead = choose_lead(planning, use->base);
        const int rc = use->lead == RFS_NO_RANK ? -ENOENT : index_lead(planning, s, planning->err);
        if (rc)
            return rc;
    }
    return find_origins(planning);
}

int rfs_plan_sources(struct planning *planning)
{
    rfs_plan_needed_stages(planning->planner, planning->stage, planning->stages);
    int rc = each_stage(planning, lead_stage);
    do { /* at most once for each stage, and once more */
        if (!rc)
            rc = each_stage(planning, presence_stage);
        if (!rc)
            rc = find_origins(planning);
        if (!rc)
            rc = each_stage(planning, need_stage);
        if (!rc)
            rc = each_stage(planning, index_stage);
        if (!rc)
            rc = each_stage(planning, compare_stage);
        if (!rc)
            rc = each_stage(planning, rfs_plan_check_rows);
    } while (!rc && any_to_presence(planning));
    return rc ? rc : each_stage(planning, report_stage);
}
