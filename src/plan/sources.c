/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which source ranks a destination rank needs, and their headers.
 *
 * Of each needed stage one rank leads: its headers tell the types, the types and the strategies tell the
 * geometries, and those tell the other ranks. Their headers are then read in parallel, predicted from the
 * lead's, and must list the same parameters with the same types as the lead's: a slice of another size
 * or a parameter that is not there would be a hole in the destination.
 */
#include "plan/internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *rfs_plan_path(const struct planning *planning, uint32_t rank)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    return rfs_files_path(rfs_catalog_files(catalog), rfs_catalog_file(catalog, rank));
}

/* The rank that leads its stage: the one that MindSpore takes this rank for, or the highest there is. */
static uint32_t choose_lead(const struct planning *planning, uint32_t base)
{
    const struct rfs_catalog *catalog = planning->planner->config.catalog;
    uint32_t local = planning->planner->scale.src_devices;

    if (rfs_catalog_has(catalog, base + planning->like))
        return base + planning->like;
    while (local-- > 0)
        if (rfs_catalog_has(catalog, base + local))
            return base + local;
    return RFS_NO_RANK;
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
    if (use->lead == RFS_NO_RANK)
        return rfs_fail(planning->err, -ENOENT, RFS_IN(rfs_catalog_path(planner->config.catalog)),
                        "the rank folders of this stage",
                        "rank_%u to rank_%u, pipeline stage %u, are all missing", use->base,
                        use->base + planner->scale.src_devices - 1, s);
    uint32_t first = atomic_load(&planner->leads[s]);
    const int rc = rfs_catalog_index(planner->config.catalog, use->lead, first, &use->lead_index,
                                     planning->err);
    if (!rc && first == RFS_NO_RANK)
        atomic_compare_exchange_strong(&planner->leads[s], &first, use->lead);
    return rc;
}

static int missing_cell(const struct planning *planning, const struct rfs_geometry *geometry,
                        uint32_t base, const uint32_t *cell, const char *param)
{
    const uint32_t rank = base + rfs_grid_holder(&geometry->src, cell, planning->like);
    return rfs_fail(planning->err, -ENOENT,
                    RFS_OF(rfs_catalog_path(planning->planner->config.catalog), param),
                    "the checkpoint of that rank",
                    "rank_%u holds a slice that rank_%u of the destination needs, but its "
                    "checkpoint is missing and %s",
                    rank, planning->rank,
                    geometry->src.replicas > 1 ? "so are those of its replicas"
                                               : "no other rank holds the same slice");
}

/* Once for each source rank, however many files take its replica. */
static void tell_replica(const struct planning *planning, const struct rfs_geometry *geometry,
                         uint32_t base, const uint32_t *cell, uint32_t used)
{
    const struct rfs_planner *planner = planning->planner;
    const uint32_t lost = base + rfs_grid_holder(&geometry->src, cell, planning->like);

    if (lost != used && !atomic_exchange(&planner->lost[lost - rfs_plan_base(planner, 0)], true))
        rfs_log(planner->config.log, RFS_WARNING,
                "rank_%u is missing; what it holds is read from a replica, rank_%u", lost, used);
}

/* Marks the ranks that give the cells of one geometry. */
static int want_cells(struct planning *planning, struct stage_use *use,
                      const struct rfs_geometry *geometry, const char *param)
{
    struct rfs_cells cells;
    uint32_t cell[RFS_MAX_DIMS];

    rfs_geometry_cells(geometry, planning->local, &cells);
    memcpy(cell, cells.first, sizeof cell);
    do {
        const uint32_t rank =
            rfs_plan_holder(planning->planner, geometry, use->base, cell, planning->like);
        if (rank == RFS_NO_RANK)
            return missing_cell(planning, geometry, use->base, cell, param);
        tell_replica(planning, geometry, use->base, cell, rank);
        use->wanted[rank - use->base] = 1;
    } while (rfs_cells_next(&cells, geometry->ndim, cell));
    return 0;
}

static int want_entry(struct planning *planning, uint32_t s, const struct rfs_entry *entry)
{
    struct rfs_planner *planner = planning->planner;
    struct rfs_catalog *catalog = planner->config.catalog;
    struct stage_use *use = &planning->stages[s];
    const char *param = rfs_catalog_name(catalog, entry->name);
    const struct rfs_type *type = rfs_catalog_type(catalog, entry->type);
    const struct role_of role = rfs_plan_role(planner, param, s, planning->stage);
    uint32_t id;

    if (role.role == ROLE_DROPPED)
        return 0;
    if (role.role == ROLE_COPIED) {
        const uint32_t from = rfs_plan_copy_rank(planner, s, planning->like);
        use->wanted[from - use->base] = 1;
        use->copy_lost = from != use->base + planning->like;
        return 0;
    }
    if (type->kind != RFS_TENSOR)
        return rfs_fail(planning->err, -EINVAL, RFS_OF(rfs_plan_path(planning, use->lead), param),
                        "a strategy without this parameter",
                        "is a %s, but the strategies cut it as a tensor",
                        type->kind == RFS_STRING ? "string" : "map tensor");
    if (type->bytes == 0)
        return 0;
    const int rc = rfs_plan_geometry(planner, &role, entry->type, param, &id, planning->err);
    if (rc)
        return rc;
    while (planning->seen.n <= id)
        if (!RFS_PUSH(&planning->seen, 0))
            return rfs_fail_memory(planning->err);
    if (planning->seen.data[id])
        return 0;
    planning->seen.data[id] = 1;
    return want_cells(planning, use, rfs_plan_geometry_at(planner, id), param);
}

/*
 * For each name the lowest needed stage whose files have it: from there it comes. The leads tell, as the
 * other files of a stage must list the same names.
 */
static int find_stages(struct planning *planning)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;

    planning->n_names = rfs_intern_count(rfs_catalog_tables(catalog)->names);
    planning->stage_of = malloc(planning->n_names * sizeof *planning->stage_of + 1);
    if (!planning->stage_of)
        return rfs_fail_memory(planning->err);
    for (uint32_t i = 0; i < planning->n_names; i++)
        planning->stage_of[i] = RFS_NO_STAGE;
    for (uint32_t s = planning->n_stages; s-- > 0;) {
        const struct stage_use *use = &planning->stages[s];
        for (size_t i = 0; use->needed && i < use->lead_index->n; i++)
            planning->stage_of[use->lead_index->entries[i].name] = s;
    }
    return 0;
}

static int want_stage(struct planning *planning, uint32_t s)
{
    struct stage_use *use = &planning->stages[s];
    const struct rfs_index *index = use->lead_index;

    planning->seen.n = 0;
    use->wanted[use->lead - use->base] = 1;
    for (size_t i = 0; i < index->n; i++) {
        if (planning->stage_of[index->entries[i].name] != s)
            continue;
        const int rc = want_entry(planning, s, &index->entries[i]);
        if (rc)
            return rc;
    }
    if (use->copy_lost)
        for (uint32_t local = 0; local < planning->planner->scale.src_devices; local++)
            use->wanted[local] |=
                rfs_catalog_has(planning->planner->config.catalog, use->base + local);
    return 0;
}

/* The job of indexing many ranks at once. */
struct indexing {
    struct planning *planning;
    struct stage_use *use;
    const uint32_t *ranks;
    pthread_mutex_t lock; /* of err */
    int failed;
    struct rfs_error *err; /* the first failure */
};

static int index_one(void *ctx, size_t i)
{
    struct indexing *job = ctx;
    struct rfs_error err = {0};
    const struct rfs_index *index;
    const int rc = rfs_catalog_index(job->planning->planner->config.catalog, job->ranks[i],
                                     job->use->lead, &index, &err);
    if (rc) {
        pthread_mutex_lock(&job->lock);
        if (!job->failed && job->err)
            *job->err = err;
        job->failed = 1;
        pthread_mutex_unlock(&job->lock);
    }
    return rc;
}

static int index_stage(struct planning *planning, uint32_t s)
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
    struct indexing job = {planning, use, ranks, PTHREAD_MUTEX_INITIALIZER, 0, planning->err};
    return rfs_pool_for(planning->planner->config.pool, n, index_one, &job);
}

static int mismatch(const struct planning *planning, const struct stage_use *use, uint32_t rank,
                    uint32_t name, const char *what)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    return rfs_fail(planning->err, -EINVAL,
                    RFS_OF(rfs_plan_path(planning, rank), rfs_catalog_name(catalog, name)),
                    "checkpoints of one save, made without remove_redundancy",
                    "%s in %s, a rank of the same stage", what, rfs_plan_path(planning, use->lead));
}

/* Proves that the files of a stage list the same parameters, and those that are cut with one type. */
static int compare_index(const struct planning *planning, const struct stage_use *use, uint32_t s,
                         uint32_t rank, const struct rfs_index *index)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    const struct rfs_index *lead = use->lead_index;

    for (size_t i = 0; i < lead->n; i++) {
        const struct rfs_entry *entry = rfs_index_find(index, lead->entries[i].name);
        if (!entry)
            return mismatch(planning, use, rank, lead->entries[i].name,
                            "is not in this file, but is");
        if (entry->type == lead->entries[i].type)
            continue;
        const char *param = rfs_catalog_name(catalog, entry->name);
        if (rfs_plan_role(planning->planner, param, s, planning->stage).role == ROLE_SLICED)
            return mismatch(planning, use, rank, entry->name,
                            "has another shape or dtype than its slice");
    }
    for (size_t i = 0; index->n != lead->n && i < index->n; i++)
        if (!rfs_index_find(lead, index->entries[i].name))
            return mismatch(planning, use, rank, index->entries[i].name,
                            "is in this file, but not");
    return 0;
}

static int compare_stage(struct planning *planning, uint32_t s)
{
    const struct rfs_planner *planner = planning->planner;
    struct stage_use *use = &planning->stages[s];
    const struct rfs_index *agreed = use->lead_index;

    for (uint32_t local = 0; local < planner->scale.src_devices; local++) {
        if (!use->wanted[local])
            continue;
        const struct rfs_index *index =
            rfs_catalog_ready(planner->config.catalog, use->base + local);
        if (!use->order || !planner->part)
            use->order = index; /* loaded first: the highest rank, or the lowest of a part */
        if (index == agreed || index == use->lead_index)
            continue;
        const int rc = compare_index(planning, use, s, use->base + local, index);
        if (rc)
            return rc;
        agreed = index;
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

int rfs_plan_sources(struct planning *planning)
{
    rfs_plan_needed_stages(planning->planner, planning->stage, planning->stages);
    int rc = each_stage(planning, lead_stage);
    if (!rc)
        rc = find_stages(planning);
    if (!rc)
        rc = each_stage(planning, want_stage);
    if (!rc)
        rc = each_stage(planning, index_stage);
    return rc ? rc : each_stage(planning, compare_stage);
}

static bool later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/* Takes one more file into the plan's attributes. */
static int add_file(struct planning *planning, uint32_t file, struct rfs_rank_plan *plan)
{
    struct rfs_files *files = rfs_catalog_files(planning->planner->config.catalog);
    const bool first = plan->n_sources == 0;
    struct stat st;

    const int rc = rfs_files_stat(files, file, &st);
    if (rc)
        return rfs_fail(planning->err, rc, RFS_IN(rfs_files_path(files, file)), NULL,
                        "cannot be examined: %s", strerror(-rc));
    plan->mode &= st.st_mode;
    if (first || later(st.st_mtim, plan->mtime))
        plan->mtime = st.st_mtim;
    plan->uid = first || plan->uid == st.st_uid ? st.st_uid : geteuid();
    plan->gid = first || plan->gid == st.st_gid ? st.st_gid : getegid();
    plan->sources[plan->n_sources++] = file;
    return 0;
}

static int add_source(struct planning *planning, uint32_t rank, struct rfs_rank_plan *plan)
{
    const struct rfs_catalog *catalog = planning->planner->config.catalog;
    int rc = 0;

    for (uint32_t part = 0; rc == 0 && part < rfs_catalog_parts(catalog, rank); part++)
        rc = add_file(planning, rfs_catalog_file(catalog, rank) + part, plan);
    return rc;
}

int rfs_plan_attributes(struct planning *planning, struct rfs_rank_plan *plan)
{
    const uint32_t devices = planning->planner->scale.src_devices;
    size_t n = 0;

    for (uint32_t s = 0; s < planning->n_stages; s++)
        for (uint32_t local = 0; planning->stages[s].needed && local < devices; local++)
            if (planning->stages[s].wanted[local])
                n += rfs_catalog_parts(planning->planner->config.catalog,
                                       planning->stages[s].base + local);
    plan->mode = 0444;
    plan->sources = malloc(n * sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(planning->err);
    for (uint32_t s = 0; s < planning->n_stages; s++) {
        const struct stage_use *use = &planning->stages[s];
        for (uint32_t local = 0; use->needed && local < devices; local++) {
            const int rc = use->wanted[local] ? add_source(planning, use->base + local, plan) : 0;
            if (rc)
                return rc;
        }
    }
    return 0;
}
