/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/explain/explain.h"

#include "base/cleanup.h"
#include "tool/explain/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct rfs_type *rfs_explained_type(const struct rfs_explain *explain,
                                          const struct rfs_explained *slice)
{
    return rfs_catalog_type(explain->rooms.catalog, slice->target->type);
}

const struct rfs_type *rfs_explained_shown_type(const struct rfs_explain *explain,
                                                const struct rfs_explained *slice)
{
    return rfs_catalog_type(explain->rooms.catalog, slice->target->shown_type);
}

const uint64_t *rfs_explained_whole(const struct rfs_explain *explain,
                                    const struct rfs_explained *slice)
{
    return slice->trace.geometry ? slice->trace.geometry->whole
                                 : rfs_explained_type(explain, slice)->dims;
}

uint32_t rfs_explained_ndim(const struct rfs_explain *explain, const struct rfs_explained *slice)
{
    return rfs_explained_type(explain, slice)->ndim;
}

uint32_t rfs_explained_dims(const struct rfs_explain *explain, const struct rfs_explained *slice,
                            const uint64_t **dims)
{
    *dims = slice->tensor ? slice->tensor->dims : rfs_explained_whole(explain, slice);
    return slice->tensor ? slice->tensor->ndim : rfs_explained_ndim(explain, slice);
}

uint32_t rfs_explain_files(const struct rfs_explain *explain, uint32_t rank)
{
    return explain->parts ? explain->n_sources
                          : rfs_planner_ready(explain->rooms.planner, rank)->n_sources;
}

const char *rfs_explain_file(const struct rfs_explain *explain, uint32_t file)
{
    const char *path = rfs_files_path(rfs_catalog_files(explain->rooms.catalog), file);
    const char *root = rfs_catalog_path(explain->rooms.catalog);
    const size_t n = strlen(root);

    return strncmp(path, root, n) == 0 && path[n] == '/' ? path + n + 1 : path;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

uint32_t *rfs_explained_providers(const struct rfs_explained *slice, size_t *n)
{
    uint32_t *ranks = calloc(slice->trace.n + 1, sizeof *ranks);
    size_t kept = 0;

    for (size_t i = 0; ranks && i < slice->trace.n; i++)
        ranks[i] = slice->trace.pieces[i].rank;
    if (ranks)
        qsort(ranks, slice->trace.n, sizeof *ranks, by_number);
    for (size_t i = 0; ranks && i < slice->trace.n; i++)
        if (kept == 0 || ranks[kept - 1] != ranks[i])
            ranks[kept++] = ranks[i];
    *n = kept;
    return ranks;
}

/* By the name that the file shows, or else by that of the source. */
static const struct rfs_target *find_target(struct rfs_explain *explain,
                                            const struct rfs_params *params)
{
    struct rfs_catalog *catalog = explain->rooms.catalog;

    if (params == explain->params)
        return explain->target;
    explain->params = params;
    explain->target = NULL;
    for (size_t i = 0; i < params->n; i++) {
        const struct rfs_target *target = &params->targets[i];
        if (strcmp(rfs_catalog_name(catalog, target->shown_name), explain->param) == 0)
            return explain->target = target;
        if (!explain->target &&
            strcmp(rfs_catalog_name(catalog, target->name), explain->param) == 0)
            explain->target = target;
    }
    return explain->target;
}

/* Where it is, if the strategies know it. */
static int nobody_has(const struct rfs_explain *explain, struct rfs_error *err)
{
    const struct rfs_strategy *dst = explain->rooms.dst;
    const ptrdiff_t at = dst ? rfs_strategy_find(dst, explain->param) : -1;
    const struct rfs_where where = RFS_OF(rfs_catalog_path(explain->rooms.catalog), explain->param);
    const bool some = explain->ranks.n > 0;
    char who[64];
    char remedy[64];

    if (explain->one)
        snprintf(who, sizeof who, "%s%s%u of the destination does not have it", explain->words->one,
                 explain->parts ? " " : "_", explain->selected[0]);
    else
        snprintf(who, sizeof who,
                 some ? "none of these destination %ss has it" : "no destination %s has it",
                 explain->words->one);
    if (explain->parts && explain->tensor == SIZE_MAX)
        return rfs_fail(err, -ENOENT, where, "reshard stats, which lists the names", "%s", who);
    if (explain->parts) {
        snprintf(remedy, sizeof remedy, "--rank %u, which has it",
                 rfs_explain_parts_held(explain->parts, explain->tensor));
        return rfs_fail(err, -ENOENT, where, remedy, "%s", who);
    }
    if (at < 0 || !some)
        return rfs_fail(err, -ENOENT, where, "reshard info, which lists the names", "%s", who);
    const uint32_t stage = rfs_strategy_next_stage(dst, (size_t)at, 0);
    const uint32_t devices = rfs_strategy_devices(dst);
    snprintf(remedy, sizeof remedy, "--ranks %u-%u", stage * devices, (stage + 1) * devices - 1);
    return rfs_fail(err, -ENOENT, where, remedy, "%s; stage %u has", who, stage);
}

/* 1, 0 if the rank does not have it, or -errno with *err filled or not. */
static int trace_target(struct rfs_explain *explain, struct rfs_explained *slice,
                        struct rfs_error *err)
{
    const struct rfs_rank_plan *plan;
    int rc = rfs_planner_rank(explain->rooms.planner, slice->rank, &plan, err);

    if (rc)
        return rc;
    slice->target = find_target(explain, plan->params);
    if (!slice->target)
        return 0;
    rc = rfs_planner_trace(explain->rooms.planner, slice->rank, slice->target, &slice->trace);
    if (rc == 0)
        rc = rfs_view_shown_at(explain->view, slice->rank,
                               (uint32_t)(slice->target - plan->params->targets), &slice->at);
    slice->is_shown = rc == 1;
    return rc < 0 ? rc : 1;
}

static int trace_part(struct rfs_explain *explain, struct rfs_explained *slice)
{
    const int rc = rfs_explain_parts_slice(explain, explain->tensor, slice);

    if (rc != 1)
        return rc;
    const int shown = rfs_view_stored_at(explain->view, slice->rank, slice->trace.pieces,
                                         slice->trace.n, &slice->at);
    slice->is_shown = shown == 1;
    return shown < 0 ? shown : 1;
}

static int explain_rank(struct rfs_explain *explain, struct rfs_explained *slice,
                        rfs_explained_fn *fn, void *ctx, size_t *n, struct rfs_error *err)
{
    const int rc = explain->parts ? trace_part(explain, slice) : trace_target(explain, slice, err);

    if (rc == 0 || (rc < 0 && err->code))
        return rc;
    ++*n;
    if (rc < 0)
        return rc == -ENOMEM
                   ? rfs_fail_memory(err)
                   : rfs_fail(err, rc,
                              RFS_OF(rfs_catalog_path(explain->rooms.catalog), explain->param),
                              NULL, "cannot be traced for rank_%u: %s", slice->rank, strerror(-rc));
    return fn(ctx, slice, err);
}

int rfs_explain_each(struct rfs_explain *explain, rfs_explained_fn *fn, void *ctx, size_t *n,
                     struct rfs_error *err)
{
    struct rfs_explained slice = {0};
    int rc = 0;

    *n = 0;
    for (size_t i = 0; rc == 0 && i < explain->n_selected; i++) {
        slice.rank = explain->selected[i];
        slice.position = i;
        rc = explain_rank(explain, &slice, fn, ctx, n, err);
    }
    rfs_trace_free(&slice.trace);
    return rc;
}

int rfs_explain_check(struct rfs_explain *explain, struct rfs_error *err)
{
    if (explain->parts) {
        explain->tensor = rfs_explain_parts_find(explain->parts, explain->param);
        for (size_t i = 0; explain->tensor != SIZE_MAX && i < explain->n_selected; i++)
            if (rfs_explain_parts_has(explain->parts, explain->tensor, explain->selected[i]))
                return 0;
        return nobody_has(explain, err);
    }
    for (size_t i = 0; i < explain->n_selected; i++)
        if (find_target(explain,
                        rfs_planner_ready(explain->rooms.planner, explain->selected[i])->params))
            return 0;
    return nobody_has(explain, err);
}
