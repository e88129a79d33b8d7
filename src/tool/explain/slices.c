/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/explain/explained.h"

#include "base/cleanup.h"
#include "base/suggest.h"
#include "base/text.h"
#include "formats/chunks/chunks.h"
#include "tool/common/show.h"
#include "tool/explain/parts.h"

uint32_t rfs_explain_files(const struct rfs_explain *explain, uint32_t rank)
{
    return explain->parts ? explain->n_sources
                          : rfs_planner_ready(explain->plans.planner, rank)->n_sources;
}

const char *rfs_explain_file(const struct rfs_explain *explain, uint32_t file)
{
    const char *path = rfs_files_path(rfs_catalog_files(explain->plans.catalog), file);
    const char *root = rfs_catalog_path(explain->plans.catalog);
    const size_t n = strlen(root);

    return strncmp(path, root, n) == 0 && path[n] == '/' ? path + n + 1 : path;
}

uint32_t *rfs_explained_others(const struct rfs_explain *explain, const struct rfs_explained *slice,
                               const struct rfs_piece_trace *piece, enum rfs_holding holding,
                               size_t *n)
{
    const struct rfs_trace *trace = &slice->trace;
    uint32_t *ranks = rfs_printed_memory(calloc((size_t)trace->devices + 1, sizeof *ranks));

    *n = 0;
    for (uint32_t rank = trace->base; rank < trace->base + trace->devices; rank++)
        if (rank != piece->rank &&
            rfs_trace_holding(explain->plans.planner, slice->target, trace, piece, rank) == holding)
            ranks[(*n)++] = rank;
    return ranks;
}

/* By the name that the file shows, or else by that of the source. */
static const struct rfs_target *find_target(struct rfs_explain *explain,
                                            const struct rfs_params *params)
{
    struct rfs_catalog *catalog = explain->plans.catalog;

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

/* The name of one of the ranks' parameters that is close to the requested one; NULL for none. */
static const char *closest_name(const struct rfs_explain *explain)
{
    const struct rfs_params *params =
        rfs_planner_ready(explain->plans.planner, explain->selected[0])->params;
    struct rfs_suggest suggest = rfs_suggest_begin(explain->param, RFS_SUGGEST_WORD);

    for (size_t i = 0; i < params->n; i++)
        rfs_suggest_offer(&suggest,
                          rfs_catalog_name(explain->plans.catalog, params->targets[i].shown_name));
    return suggest.nearest;
}

/* Where it is, if the strategies know it. */
static int nobody_has(const struct rfs_explain *explain, struct rfs_error *err)
{
    const struct rfs_strategy *dst = explain->plans.dst;
    const ptrdiff_t at = dst ? rfs_strategy_find(dst, explain->param) : -1;
    const struct rfs_where where = RFS_OF(rfs_catalog_path(explain->plans.catalog), explain->param);
    const bool some = explain->ranks.n > 0;
    char absence[64];
    char remedy[64];

    if (explain->one)
        snprintf(absence, sizeof absence, "%s%s%u of the destination does not have it",
                 explain->words->one, explain->parts ? " " : "_", explain->selected[0]);
    else
        snprintf(absence, sizeof absence,
                 some ? "none of these destination %ss has it" : "no destination %s has it",
                 explain->words->one);
    if (explain->parts && explain->tensor == SIZE_MAX)
        return rfs_fail(err, -ENOENT, where, "reshard stats, which lists the names", "%s", absence);
    if (explain->parts) {
        snprintf(remedy, sizeof remedy, "--rank %u, which has it",
                 rfs_explain_parts_held(explain->parts, explain->tensor));
        return rfs_fail(err, -ENOENT, where, remedy, "%s", absence);
    }
    const char *closest = at < 0 ? closest_name(explain) : NULL;
    if (closest) {
        char meant[256];
        snprintf(meant, sizeof meant, "--param '%s'", closest);
        return rfs_fail(err, -ENOENT, where, meant, "%s", absence);
    }
    if (at < 0 || !some)
        return rfs_fail(err, -ENOENT, where,
                        explain->plans.converted
                            ? "reshard convert check with --list, which lists the names"
                            : "reshard info, which lists the names",
                        "%s", absence);
    const uint32_t stage = rfs_strategy_next_stage(dst, (size_t)at, 0);
    const uint32_t devices = rfs_strategy_devices(dst);
    snprintf(remedy, sizeof remedy, "--ranks %u-%u", stage * devices, (stage + 1) * devices - 1);
    return rfs_fail(err, -ENOENT, where, remedy, "%s; stage %u has", absence, stage);
}

/* ---- a slice --------------------------------------------------------------------------------- */

static int add_part(void *ctx, const struct rfs_by_rules_piece *piece)
{
    struct rfs_explained *slice = ctx;
    const struct rfs_explained_part part = {piece->link, *piece->span, piece->rank, *piece->block};

    return RFS_PUSH(&slice->parts, part) ? 0 : -ENOMEM;
}

int rfs_explain_trace(const struct rfs_explain *explain, struct rfs_explained *slice)
{
    const struct rfs_by_rules *converted = explain->plans.converted;
    struct rfs_planner *planner = explain->plans.planner;
    const int rc = rfs_planner_trace(planner, slice->rank, slice->target, &slice->trace);

    if (rc || !converted)
        return rc;
    slice->trace.n = slice->parts.n = 0;
    slice->made = rfs_by_rules_made(converted, slice->target->name);
    return rfs_planner_converted_walk(planner, slice->rank, slice->target, add_part, slice);
}

static struct rfs_explained_side side_of(const struct rfs_layout *layout,
                                         const struct rfs_grid *grid, const uint64_t *slice)
{
    if (grid)
        return (struct rfs_explained_side){
            .layout = layout, .grid = grid, .slice = grid->edge ? NULL : slice};
    return (struct rfs_explained_side){.words = layout ? "only one of the strategies has it: "
                                                         "copied as it is"
                                                       : "in neither strategy: copied as it is",
                                       .layout = layout};
}

/* How a checkpoint that describes itself has a tensor. */
static struct rfs_explained_side chunks_of(const struct rfs_chunks *boxes,
                                           struct rfs_explained *slice)
{
    const struct rfs_chunked_tensor *tensor =
        rfs_chunks_find(boxes, slice->name, strlen(slice->name));
    const uint32_t n = tensor ? tensor->n : 0;
    size_t at = (size_t)snprintf(slice->chunks, sizeof slice->chunks, "%" PRIu32 " chunk%s", n,
                                 n == 1 ? "" : "s");

    for (uint32_t i = 0; tensor && tensor->grid && i < slice->type->ndim; i++)
        if (tensor->grid->pieces[i] > 1 && at < sizeof slice->chunks)
            at += (size_t)snprintf(slice->chunks + at, sizeof slice->chunks - at,
                                   ", axis %" PRIu32 " in %" PRIu32, i, tensor->grid->pieces[i]);
    return (struct rfs_explained_side){.words = slice->chunks, .chunks = true};
}

/* The rest of a slice whose target and trace are set. False when out of memory. */
static bool describe(const struct rfs_explain *explain, struct rfs_explained *slice,
                     const struct rfs_shown_at *at)
{
    struct rfs_catalog *catalog = explain->plans.catalog;
    const struct rfs_geometry *geometry = slice->trace.geometry;

    slice->name = rfs_catalog_name(catalog, slice->target->name);
    slice->shown_name = rfs_catalog_name(catalog, slice->target->shown_name);
    slice->type = rfs_catalog_type(catalog, slice->target->type);
    slice->shown = rfs_catalog_type(catalog, slice->target->shown_type);
    slice->whole = geometry ? geometry->whole : slice->type->dims;
    if (!explain->parts) {
        slice->n_dims = slice->type->ndim;
        slice->dims = slice->whole;
        slice->source = rfs_catalog_chunks(catalog)
                            ? chunks_of(rfs_catalog_chunks(catalog), slice)
                            : side_of(slice->trace.src, geometry ? &geometry->src : NULL,
                                      geometry ? geometry->src_dims : NULL);
        slice->destination = side_of(slice->trace.dst, geometry ? &geometry->dst : NULL,
                                     geometry ? geometry->dst_dims : NULL);
    }
    slice->boxes.n = 0;
    for (uint32_t k = 0; geometry && k < geometry->dst.rounds; k++) {
        struct rfs_box box = {.len = {0}};
        rfs_trace_box(&geometry->dst, geometry->whole, slice->rank % geometry->dst.ranks, k, &box);
        if (!RFS_PUSH(&slice->boxes, box))
            return false;
    }
    free(slice->path);
    slice->path = NULL;
    slice->offset = at->offset;
    if (at->name)
        slice->path = rfs_text_printf("%s%s%s", at->folder ? at->folder : "", at->folder ? "/" : "",
                                      at->name);
    return !at->name || slice->path;
}

/* 1, 0 if the rank does not have it, or -errno with *err filled or not. */
static int trace(struct rfs_explain *explain, struct rfs_explained *slice, struct rfs_shown_at *at,
                 struct rfs_error *err)
{
    const struct rfs_rank_plan *plan;
    int rc;

    if (explain->parts) {
        rc = rfs_explain_parts_slice(explain, explain->tensor, slice);
        if (rc == 1)
            rc = rfs_view_stored_at(explain->view, slice->rank, slice->trace.pieces, slice->trace.n,
                                    at);
        else
            return rc;
        return rc < 0 ? rc : 1;
    }
    rc = rfs_planner_rank(explain->plans.planner, slice->rank, &plan, err);
    if (rc)
        return rc;
    slice->target = find_target(explain, plan->params);
    if (!slice->target)
        return 0;
    rc = rfs_explain_trace(explain, slice)
             ?: rfs_view_shown_at(explain->view, slice->rank,
                                  (uint32_t)(slice->target - plan->params->targets), at);
    return rc < 0 ? rc : 1;
}

static int explain_rank(struct rfs_explain *explain, struct rfs_explained *slice,
                        rfs_explained_fn *fn, void *ctx, struct rfs_error *err)
{
    struct rfs_shown_at at = {.name = NULL};
    int rc = trace(explain, slice, &at, err);

    if (rc == 0 || (rc < 0 && err->code))
        return rc;
    if (rc > 0 && !describe(explain, slice, &at))
        rc = -ENOMEM;
    if (rc < 0)
        return rc == -ENOMEM
                   ? rfs_fail_memory(err)
                   : rfs_fail(err, rc,
                              RFS_OF(rfs_catalog_path(explain->plans.catalog), explain->param),
                              NULL, "cannot be traced for rank_%u: %s", slice->rank, strerror(-rc));
    return fn(ctx, slice, err);
}

void rfs_explained_free(struct rfs_explained *slice)
{
    rfs_trace_free(&slice->trace);
    free(slice->parts.data);
    free(slice->boxes.data);
    free(slice->path);
}

int rfs_explain_each(struct rfs_explain *explain, rfs_explained_fn *fn, void *ctx,
                     struct rfs_error *err)
{
    struct rfs_explained slice = {0};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < explain->n_selected; i++) {
        slice.rank = explain->selected[i];
        slice.position = i;
        rc = explain_rank(explain, &slice, fn, ctx, err);
    }
    rfs_explained_free(&slice);
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
                        rfs_planner_ready(explain->plans.planner, explain->selected[i])->params))
            return 0;
    return nobody_has(explain, err);
}
