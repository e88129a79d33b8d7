/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/whole_tensors.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/suggest.h"
#include "base/text.h"
#include "reshard.h"
#include "view/hfai_view.h"
#include "view/internal.h"

/* ---- hfai's parts ---------------------------------------------------------------------------- */

static int values_by_name(const void *x, const void *y)
{
    const struct rfs_hfai_value *a = x;
    const struct rfs_hfai_value *b = y;
    const int by = strcmp(a->name, b->name);

    return by ? by : memcmp(a->hash, b->hash, sizeof a->hash);
}

const struct rfs_hfai_value *rfs_whole_values(const struct rfs_whole *whole, size_t *n)
{
    *n = whole->parts->list.values.n;
    return whole->parts->list.values.data;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b, void *ctx)
{
    const struct rfs_whole_tensor *tensors = ctx;

    return strcmp(tensors[*(const uint32_t *)a].name, tensors[*(const uint32_t *)b].name);
}

static void order_names(struct rfs_whole *whole)
{
    for (size_t i = 0; i < whole->n; i++)
        whole->by_name[i] = (uint32_t)i;
    qsort_r(whole->by_name, whole->n, sizeof *whole->by_name, by_name, whole->tensors);
}

static int take_tensors(struct rfs_whole *whole, const struct rfs_params *params,
                        const struct rfs_whole_names *names, struct rfs_error *err)
{
    const bool ranks = whole->ranks > 1;

    whole->params = params;
    whole->tensors = calloc(params->n + 1, sizeof *whole->tensors);
    whole->by_name = calloc(params->n + 1, sizeof *whole->by_name);
    if (!whole->tensors || !whole->by_name)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < params->n; i++) {
        const struct rfs_target *target = &params->targets[i];
        const struct rfs_whole_tensor tensor = {
            .name = rfs_catalog_name(whole->catalog, target->shown_name),
            .type = rfs_catalog_type(whole->catalog, target->shown_type),
            .target = target,
            .own = ranks && target->geometry == RFS_NO_ID,
        };
        if (names && !names->take(names->ctx, tensor.name))
            continue;
        whole->tensors[whole->n++] = tensor;
    }
    order_names(whole);
    return 0;
}

/* Takes a view over, and the one plain view in it. */
static int take_view(const char *path, reshard_view *opened, struct rfs_whole *whole,
                     struct rfs_error *err)
{
    *whole = (struct rfs_whole){.path = path,
                                .opened = opened,
                                .view = rfs_view_only(opened),
                                .lacking = calloc(1, sizeof *whole->lacking)};
    if (!whole->lacking)
        return rfs_fail_memory(err);
    if (!whole->view)
        return rfs_fail_usage(err, "-o step=N", "one save at a time can be read, not all steps");
    atomic_store(&whole->view->notes.telling, RFS_TELL_ONE_SIDED);
    return 0;
}

/*
 * Makes the planner, which also has tensors that a .ckpt file would lack, and takes what
 * whole->rank has.
 */
static int take_rank(struct rfs_whole *whole, const struct rfs_strategy *dst, bool quiet,
                     const struct rfs_whole_names *names, struct rfs_error *err)
{
    struct rfs_view *view = whole->view;
    const struct rfs_planner_change change = {
        .dst = dst,
        .notes = quiet ? NULL : &view->notes,
        .keep_empty = true,
        .lacking = view->set->late ? whole->lacking : NULL,
    };
    const struct rfs_rank_plan *plan;
    struct rfs_scale scale;
    int rc = rfs_planner_derive(view->planner, &change, &whole->planner, err);

    if (rc == 0)
        rc = rfs_planner_rank(whole->planner, whole->rank, &plan, err);
    if (rc)
        return rc;
    rfs_planner_scale(whole->planner, &scale);
    whole->catalog = view->catalog;
    whole->first = scale.src_base;
    whole->ranks = scale.src_devices * scale.src_stages;
    whole->stages = scale.src_stages;
    uint32_t at = 0;
    uint32_t rank;
    for (const char *lost; names && (lost = rfs_whole_lost(whole, &at, &rank));)
        names->take(names->ctx, lost);
    return take_tensors(whole, plan->params, names, err);
}

/* Takes all tensors of the state of hfai's parts. */
static int take_parts(struct rfs_whole *whole, const struct rfs_whole_names *names,
                      struct rfs_error *err)
{
    struct rfs_view_hfai_list *parts = whole->parts = calloc(1, sizeof *parts);

    whole->ranks = whole->stages = 1;
    if (!parts)
        return rfs_fail_memory(err);
    const int rc = rfs_view_hfai_list(whole->view, false, false, parts, err);
    if (rc)
        return rc;
    RFS_SORT_ALL(&parts->list.values, values_by_name);
    whole->catalog = parts->catalog;
    whole->planner = parts->planner;
    return take_tensors(whole, parts->params, names, err);
}

const char *rfs_whole_match(struct rfs_whole *a, struct rfs_whole *b)
{
    struct rfs_whole *parts = a->parts ? a : b;

    if (!b->view || !a->parts == !b->parts)
        return NULL;
    const struct rfs_target *end = parts->params->targets + parts->parts->list.n_models;
    while (parts->n > 0 && parts->tensors[parts->n - 1].target >= end)
        parts->n--;
    order_names(parts);
    return parts->path;
}

int rfs_whole_open(const char *path, reshard_view *opened, const struct rfs_whole_names *names,
                   struct rfs_whole *whole, struct rfs_whole *cut, struct rfs_error *err)
{
    int rc = take_view(path, opened, whole, err);

    if (rc)
        return rc;
    if (!whole->view->planner)
        return take_parts(whole, names, err);
    const struct rfs_strategy *dst = whole->view->dst;
    if (dst && !cut)
        return rfs_fail_usage(err, "-d FILE where there is such an option",
                              "this command reads whole tensors: -o takes no destination");
    if (dst) {
        *cut = (struct rfs_whole){.path = path,
                                  .opened = whole->opened,
                                  .view = whole->view,
                                  .lacking = calloc(1, sizeof *cut->lacking),
                                  .is_cut = true};
        rc = cut->lacking ? take_rank(cut, dst, false, NULL, err) : rfs_fail_memory(err);
    }
    return rc ? rc : take_rank(whole, NULL, dst != NULL, names, err);
}

int rfs_whole_describe(struct rfs_whole *whole, const struct rfs_whole *cut, struct rfs_error *err)
{
    RFS_FREE unsigned char *seen =
        calloc(whole->n + 1, 1); /* found in a lower stage, which counts */
    int rc = seen ? 0 : rfs_fail_memory(err);

    for (uint32_t stage = 0; rc == 0 && stage < whole->view->scale.dst_stages; stage++) {
        const struct rfs_rank_plan *plan;
        const uint32_t rank = stage * whole->view->scale.dst_devices;
        rc = rfs_planner_rank(cut->planner, rank, &plan, err);
        for (size_t i = 0; rc == 0 && i < plan->params->n; i++) {
            const struct rfs_target *target = &plan->params->targets[i];
            const char *name = rfs_catalog_name(cut->catalog, target->shown_name);
            const struct rfs_whole_tensor *found = rfs_whole_find(whole, name);
            if (!found || seen[found - whole->tensors])
                continue;
            seen[found - whole->tensors] = 1;
            if (target->geometry == RFS_NO_ID)
                whole->tensors[found - whole->tensors] = (struct rfs_whole_tensor){
                    .name = name,
                    .type = rfs_catalog_type(cut->catalog, target->shown_type),
                    .target = target,
                    .own = found->own,
                    .cut = cut,
                    .rank = rank};
        }
    }
    return rc;
}

int rfs_whole_open_rank(const char *path, reshard_view *opened, int64_t rank,
                        struct rfs_whole *whole, struct rfs_error *err)
{
    const int rc = take_view(path, opened, whole, err);

    if (rc)
        return rc;
    whole->rank = rank > 0 ? (uint32_t)rank : 0;
    whole->of_rank = rank >= 0;
    const struct rfs_strategy *dst = rank < 0 ? NULL : whole->view->dst;
    const uint32_t ranks = dst ? rfs_view_ranks(whole->view) : 1;
    if (whole->rank >= ranks)
        return rfs_fail_usage(err,
                              dst || !whole->view->src
                                  ? "ranks from 0 on"
                                  : "-o 'dst_rules=like source' for the ranks of the source",
                              "there is no rank %u of %u", whole->rank, ranks);
    return !whole->view->planner ? take_parts(whole, NULL, err)
                                 : take_rank(whole, dst, false, NULL, err);
}

void rfs_whole_close(struct rfs_whole *whole)
{
    free(whole->tensors);
    free(whole->by_name);
    if (whole->lacking) {
        free(whole->lacking->damaged.data);
        free(whole->lacking->from.data);
        free(whole->lacking);
    }
    if (whole->parts)
        rfs_view_hfai_list_free(whole->parts);
    else
        rfs_planner_free(whole->planner);
    free(whole->parts);
    if (!whole->is_cut)
        reshard_close(whole->opened);
    *whole = (struct rfs_whole){0};
}

/* ---- reading --------------------------------------------------------------------------------- */

const struct rfs_whole_tensor *rfs_whole_find(const struct rfs_whole *whole, const char *name)
{
    const size_t at =
        RFS_BISECT(i, whole->n, strcmp(whole->tensors[whole->by_name[i]].name, name) >= 0);
    const struct rfs_whole_tensor *tensor =
        at < whole->n ? &whole->tensors[whole->by_name[at]] : NULL;

    return tensor && strcmp(tensor->name, name) == 0 ? tensor : NULL;
}

/* Fails, as no tensor has a name; says where it is, if a stage of the destination has it. */
static int has_none(const struct rfs_whole *whole, const char *name, struct rfs_error *err)
{
    const struct rfs_where where = RFS_OF(whole->path, name);
    const struct rfs_strategy *dst = whole->of_rank ? whole->view->dst : NULL;
    const ptrdiff_t at = dst ? rfs_strategy_find(dst, name) : -1;
    struct rfs_suggest suggest = rfs_suggest_begin(name, UINT_MAX);
    char remedy[64];

    if (at >= 0) {
        const uint32_t stage = rfs_strategy_next_stage(dst, (size_t)at, 0);
        snprintf(remedy, sizeof remedy, "--rank %u", stage * rfs_strategy_devices(dst));
        return rfs_fail(err, -ENOENT, where, remedy,
                        "rank_%u of the destination does not have it; stage %u has", whole->rank,
                        stage);
    }
    for (size_t i = 0; i < whole->n; i++)
        rfs_suggest_offer(&suggest, whole->tensors[i].name);
    return rfs_fail(err, -ENOENT, where,
                    suggest.nearest ? suggest.nearest
                    : whole->parts  ? "reshard stats, which lists the names"
                                    : "reshard info, which lists the names",
                    "there is no such tensor");
}

int rfs_whole_choose(const struct rfs_whole *whole, const char *name,
                     const struct rfs_whole_tensor **out, struct rfs_error *err)
{
    *out = rfs_whole_find(whole, name);
    for (size_t i = 0; !*out && i < whole->n; i++)
        if (strcmp(rfs_catalog_name(whole->catalog, whole->tensors[i].target->name), name) == 0)
            *out = &whole->tensors[i];
    return *out ? 0 : has_none(whole, name, err);
}

const char *rfs_whole_lost(const struct rfs_whole *whole, uint32_t *at, uint32_t *rank)
{
    for (; whole->lacking && *at < whole->lacking->from.n; ++*at)
        if (whole->lacking->from.data[*at] > 0) {
            *rank = whole->lacking->from.data[*at] - 1;
            const char *name = rfs_catalog_name(whole->catalog, (*at)++);
            const char *shown = rfs_names_shown(whole->view->output_map, name);
            return shown ? shown : name;
        }
    return NULL;
}

bool rfs_whole_lacks(const struct rfs_whole *whole, const char *name)
{
    uint32_t at = 0;
    uint32_t rank;

    for (const char *lost; (lost = rfs_whole_lost(whole, &at, &rank));)
        if (strcmp(lost, name) == 0)
            return true;
    return false;
}

static struct rfs_tensors list_of(const struct rfs_whole *whole)
{
    return (struct rfs_tensors){.catalog = whole->catalog,
                                .planner = whole->planner,
                                .rank = whole->rank,
                                .params = whole->params};
}

int rfs_whole_slice(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                    struct rfs_slice *slice)
{
    if (tensor->cut)
        return rfs_planner_slice(tensor->cut->planner, tensor->rank, tensor->target, slice);
    const struct rfs_tensors list = list_of(whole);
    return rfs_tensors_slice(&list, (uint32_t)(tensor->target - list.params->targets), slice);
}

int rfs_whole_read(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                   const struct rfs_slice *slice, uint64_t begin, size_t size, void *buf,
                   struct rfs_error *err)
{
    struct rfs_casting cast;
    int rc = 0;

    if (size > 0)
        rc = rfs_view_target_is_cast(whole->view, tensor->target, &cast)
                 ? rfs_assemble_cast(whole->view->assembler, slice, &cast, begin, size, true, buf)
                 : rfs_assemble(whole->view->assembler, slice, begin, size, true, buf);
    if (rc == 0)
        return 0;
    /* The reason has been logged with the file. */
    for (size_t i = 0; i < slice->n; i++) {
        struct rfs_files *files = rfs_catalog_files(whole->catalog);
        if (rfs_files_state(files, slice->blocks[i].file) == rc)
            return rfs_files_fail(err, rfs_files_path(files, slice->blocks[i].file), rc);
    }
    return rc == -ENOMEM ? rfs_fail_memory(err)
                         : rfs_fail(err, rc, RFS_OF(whole->path, tensor->name), "again",
                                    "cannot be read: %s", strerror(-rc));
}

struct rfs_whole_source rfs_whole_locate(const struct rfs_whole *whole,
                                         const struct rfs_whole_tensor *tensor,
                                         const struct rfs_slice *slice, uint64_t at)
{
    struct rfs_whole_source source = {.rank = RFS_NO_RANK, .left = 1};
    struct rfs_casting cast;
    uint64_t end = at + 1;
    uint64_t from = 0;
    uint64_t left = 1;
    const bool converted = rfs_view_target_is_cast(whole->view, tensor->target, &cast);

    if (converted)
        rfs_assemble_uncast(&cast, &at, &end);
    const struct rfs_block *block = rfs_slice_find(slice, at, &from, &left);
    if (!block)
        return source;
    source.left = left;
    if (converted)
        source.left = left / rfs_dtype_bytes(cast.from) * rfs_dtype_bytes(cast.to);
    if (block->content.zeros)
        return source;
    source.file = rfs_files_path(rfs_catalog_files(whole->catalog), block->file);
    source.offset = rfs_files_offset(rfs_catalog_files(whole->catalog), block->file,
                                     rfs_catalog_content_offset(&block->content, from));
    /* Files of a checkpoint that describes itself are those of ranks that it does not number. */
    const struct rfs_catalog *catalog = whole->view->catalog;
    const uint32_t ranks = rfs_catalog_chunks(catalog) ? 0 : rfs_catalog_ranks(catalog);
    for (uint32_t r = 0; r < ranks; r++)
        if (rfs_catalog_has(catalog, r) && !rfs_catalog_stands_in(catalog, r) &&
            block->file - rfs_catalog_file(catalog, r) < rfs_catalog_file_count(catalog, r))
            source.rank = r;
    return source;
}

/* ---- the rest -------------------------------------------------------------------------------- */

const char *rfs_whole_dtype(const struct rfs_type *type)
{
    return type->kind == RFS_MAP ? "map" : rfs_dtype_name((enum rfs_dtype)type->dtype);
}
