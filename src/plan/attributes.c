/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes of a destination file: those of the source files that give it something. */
#include "plan/internal.h"

static bool later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

static struct rfs_access access_of(const struct rfs_rank_plan *plan)
{
    return (struct rfs_access){plan->uid, plan->gid, plan->mode & S_IRUSR, plan->mode & S_IRGRP,
                               plan->mode & S_IROTH};
}

int rfs_plan_add_file(struct rfs_files *files, uint32_t file, struct rfs_rank_plan *plan,
                      struct rfs_error *err)
{
    const bool first = plan->n_sources == 0;
    struct stat st;

    const int rc = rfs_files_stat(files, file, &st);
    if (rc) {
        rfs_fail(err, rc, RFS_IN(rfs_files_path(files, file)), NULL, "cannot be examined: %s",
                 strerror(-rc));
        rfs_files_reason(files, file, rc, err);
        return rc;
    }
    struct rfs_access access = rfs_files_access(files, file, &st);
    if (!first)
        access = rfs_access_both(access, access_of(plan));
    plan->mode = rfs_access_mode(access, 0444);
    plan->uid = access.uid;
    plan->gid = access.gid;
    if (first || later(st.st_mtim, plan->mtime))
        plan->mtime = st.st_mtim;
    plan->sources[plan->n_sources++] = file;
    return 0;
}

static int add_source(struct planning *planning, uint32_t rank, struct rfs_rank_plan *plan)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    int rc = 0;

    for (uint32_t part = 0; rc == 0 && part < rfs_catalog_parts(catalog, rank); part++)
        rc = rfs_plan_add_file(rfs_catalog_files(catalog), rfs_catalog_file(catalog, rank) + part,
                               plan, planning->err);
    return rc;
}

int rfs_plan_attributes(struct planning *planning, struct rfs_rank_plan *plan)
{
    const uint32_t devices = planning->planner->scale.src_devices;
    size_t n = 0;

    for (uint32_t s = 0; s < planning->n_stages; s++)
        for (uint32_t local = 0; planning->stages[s].needed && local < devices; local++)
            if (planning->stages[s].wanted[local] & PROVIDES)
                n += rfs_catalog_parts(planning->planner->config.catalog,
                                       planning->stages[s].base + local);
    plan->mode = 0444;
    plan->sources = malloc(n * sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(planning->err);
    for (uint32_t s = 0; s < planning->n_stages; s++) {
        const struct stage_use *use = &planning->stages[s];
        for (uint32_t local = 0; use->needed && local < devices; local++) {
            const int rc =
                use->wanted[local] & PROVIDES ? add_source(planning, use->base + local, plan) : 0;
            if (rc)
                return rc;
        }
    }
    return 0;
}
