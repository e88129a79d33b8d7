/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/whole_tensors.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/suggest.h"
#include "base/text.h"
#include "reshard.h"
#include "view/contents.h"
#include "view/hfai_view.h"

/* ---- hfai's parts ---------------------------------------------------------------------------- */

static int values_by_name(const void *x, const void *y)
{
    const struct rfs_hfai_value *a = x;
    const struct rfs_hfai_value *b = y;
    const int by = strcmp(a->name, b->name);

    return by ? by : memcmp(a->hash, b->hash, sizeof a->hash);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Takes the tensors of LIST whose names are taken, which are the first N_MODELS' models' or not. */
static int take_tensors(struct rfs_whole *whole, struct rfs_tensors list, size_t n_models,
                        const struct rfs_whole_names *names, struct rfs_error *err)
{
    const struct rfs_params *all = list.params;
    struct rfs_params *taken = whole->taken =
        malloc(sizeof *taken + all->n * sizeof *taken->targets);

    list.path = whole->list.path;
    if (!taken)
        return rfs_fail_memory(err);
    taken->n = 0;
    for (size_t i = 0; i < all->n; i++) {
        if (names && !names->take(names->ctx, rfs_tensors_name(&list, i)))
            continue;
        whole->n_models += i < n_models;
        taken->targets[taken->n++] = all->targets[i];
    }
    list.params = taken;
    whole->list = list;
    return rfs_tensors_sort_names(&whole->list) ? rfs_fail_memory(err) : 0;
}

/* Takes a view over, and the one plain view in it. */
static int take_view(const char *path, reshard_view *opened, struct rfs_whole *whole,
                     struct rfs_error *err)
{
    struct rfs_view *view = rfs_view_only(opened);

    *whole = (struct rfs_whole){.opened = opened,
                                .list = {.view = view, .path = path},
                                .lacking = calloc(1, sizeof *whole->lacking)};
    if (!whole->lacking)
        return rfs_fail_memory(err);
    if (!view)
        return rfs_fail_usage(err, "-o step=N", "one save at a time can be read, not all steps");
    whole->of = rfs_view_contents(view);
    atomic_store(&whole->of.notes->telling, RFS_TELL_ONE_SIDED);
    return 0;
}

/*
 * Makes the planner, which also has tensors that a .ckpt file would lack, and takes what the rank
 * of the list has.
 */
static int take_rank(struct rfs_whole *whole, const struct rfs_strategy *dst, bool quiet,
                     const struct rfs_whole_names *names, struct rfs_error *err)
{
    struct rfs_view *view = whole->list.view;
    const struct rfs_planner_change change = {
        .dst = dst,
        .notes = quiet ? NULL : whole->of.notes,
        .keep_empty = true,
        .lacking = whole->of.late ? whole->lacking : NULL,
    };
    struct rfs_tensors list;
    struct rfs_scale scale;
    int rc = rfs_planner_derive(whole->of.planner, &change, &whole->list.planner, err);

    if (rc == 0)
        rc = rfs_tensors_of_rank(view, whole->list.planner, whole->list.rank, &list, err);
    if (rc)
        return rc;
    rfs_planner_scale(whole->list.planner, &scale);
    whole->list.catalog = whole->of.catalog;
    whole->first = scale.src_base;
    whole->ranks = scale.src_devices * scale.src_stages;
    whole->stages = scale.src_stages;
    uint32_t at = 0;
    uint32_t rank;
    for (const char *lost; names && (lost = rfs_whole_lost(whole, &at, &rank));)
        names->take(names->ctx, lost);
    return take_tensors(whole, list, 0, names, err);
}

/* Takes all tensors of the state of hfai's parts. */
static int take_parts(struct rfs_whole *whole, const struct rfs_whole_names *names,
                      struct rfs_error *err)
{
    struct rfs_view_hfai_list *parts = whole->parts = calloc(1, sizeof *parts);

    whole->ranks = whole->stages = 1;
    if (!parts)
        return rfs_fail_memory(err);
    const int rc = rfs_view_hfai_list(whole->list.view, RFS_VIEW_HFAI_STATE, parts, err);
    if (rc)
        return rc;
    RFS_SORT_ALL(&parts->state.values, values_by_name);
    return take_tensors(whole, parts->tensors, parts->state.n_models, names, err);
}

const char *rfs_whole_match(struct rfs_whole *a, struct rfs_whole *b)
{
    struct rfs_whole *parts = a->parts ? a : b;

    if (!b->list.view || !a->parts == !b->parts)
        return NULL;
    const size_t n = parts->taken->n;
    struct rfs_tensors_name *names = parts->list.by_name;
    parts->taken->n = 0;
    for (size_t i = 0; i < n; i++)
        if (names[i].i < parts->n_models)
            names[parts->taken->n++] = names[i];
    return parts->list.path;
}

int rfs_whole_open(const char *path, reshard_view *opened, const struct rfs_whole_names *names,
                   struct rfs_whole *whole, struct rfs_whole *cut, struct rfs_error *err)
{
    int rc = take_view(path, opened, whole, err);

    if (rc)
        return rc;
    const struct rfs_strategy *dst = whole->of.dst;
    if (!whole->of.planner)
        return take_parts(whole, names, err);
    if (dst && !cut)
        return rfs_fail_usage(err, "-d FILE where there is such an option",
                              "this command reads whole tensors: -o takes no destination");
    if (dst) {
        *cut = (struct rfs_whole){.opened = whole->opened,
                                  .of = whole->of,
                                  .list = {.view = whole->list.view, .path = path},
                                  .lacking = calloc(1, sizeof *cut->lacking),
                                  .is_cut = true};
        rc = cut->lacking ? take_rank(cut, dst, false, NULL, err) : rfs_fail_memory(err);
    }
    return rc ? rc : take_rank(whole, NULL, dst != NULL, names, err);
}

int rfs_whole_open_rank(const char *path, reshard_view *opened, int64_t rank,
                        struct rfs_whole *whole, struct rfs_error *err)
{
    const int rc = take_view(path, opened, whole, err);

    if (rc)
        return rc;
    const struct rfs_strategy *dst = rank < 0 ? NULL : whole->of.dst;
    const uint32_t ranks = dst ? whole->of.n_ranks : 1;
    whole->list.rank = rank > 0 ? (uint32_t)rank : 0;
    whole->of_rank = rank >= 0;
    if (whole->list.rank >= ranks)
        return rfs_fail_usage(err,
                              dst || !whole->of.src
                                  ? "ranks from 0 on"
                                  : "-o 'dst_rules=like source' for the ranks of the source",
                              "there is no rank %u of %u", whole->list.rank, ranks);
    return !whole->of.planner ? take_parts(whole, NULL, err)
                              : take_rank(whole, dst, false, NULL, err);
}

void rfs_whole_close(struct rfs_whole *whole)
{
    free(whole->taken);
    free(whole->list.by_name);
    if (whole->lacking) {
        free(whole->lacking->damaged.data);
        free(whole->lacking->from.data);
        free(whole->lacking);
    }
    if (whole->parts)
        rfs_view_hfai_list_free(whole->parts);
    else
        rfs_planner_free(whole->list.planner);
    free(whole->parts);
    if (!whole->is_cut)
        reshard_close(whole->opened);
    *whole = (struct rfs_whole){0};
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Fails, as no tensor has a name; says where it is, if a stage of the destination has it. */
static int has_none(const struct rfs_whole *whole, const char *name, struct rfs_error *err)
{
    const struct rfs_where where = RFS_OF(whole->list.path, name);
    const struct rfs_strategy *dst = whole->of_rank ? whole->of.dst : NULL;
    const ptrdiff_t at = dst ? rfs_strategy_find(dst, name) : -1;
    struct rfs_suggest suggest = rfs_suggest_begin(name, UINT_MAX);
    char remedy[64];

    if (at >= 0) {
        const uint32_t stage = rfs_strategy_next_stage(dst, (size_t)at, 0);
        snprintf(remedy, sizeof remedy, "--rank %u", stage * rfs_strategy_devices(dst));
        return rfs_fail(err, -ENOENT, where, remedy,
                        "rank_%u of the destination does not have it; stage %u has",
                        whole->list.rank, stage);
    }
    for (size_t i = 0; i < rfs_tensors_count(&whole->list); i++)
        rfs_suggest_offer(&suggest, rfs_tensors_name(&whole->list, i));
    return rfs_fail(err, -ENOENT, where,
                    suggest.nearest ? suggest.nearest
                    : whole->parts  ? "reshard stats, which lists the names"
                                    : "reshard info, which lists the names",
                    "there is no such tensor");
}

int rfs_whole_choose(const struct rfs_whole *whole, const char *name, struct rfs_tensor *out,
                     struct rfs_error *err)
{
    const struct rfs_tensors *list = &whole->list;

    *out = rfs_tensors_find(list, name);
    for (uint32_t i = 0; !out->list && i < rfs_tensors_count(list); i++)
        if (strcmp(rfs_catalog_name(list->catalog, rfs_tensors_target(list, i)->name), name) == 0)
            *out = (struct rfs_tensor){list, i};
    return out->list ? 0 : has_none(whole, name, err);
}

bool rfs_whole_is_own(const struct rfs_whole *whole, size_t i)
{
    return whole->ranks > 1 && rfs_tensors_target(&whole->list, i)->geometry == RFS_NO_ID;
}

const char *rfs_whole_lost(const struct rfs_whole *whole, uint32_t *at, uint32_t *rank)
{
    for (; whole->lacking && *at < whole->lacking->from.n; ++*at)
        if (whole->lacking->from.data[*at] > 0) {
            *rank = whole->lacking->from.data[*at] - 1;
            const char *name = rfs_catalog_name(whole->list.catalog, (*at)++);
            const char *shown = rfs_names_shown(whole->of.names, name);
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

/* ---- the rest -------------------------------------------------------------------------------- */

const char *rfs_whole_dtype(const struct rfs_type *type)
{
    return type->kind == RFS_MAP ? "map" : rfs_dtype_name((enum rfs_dtype)type->dtype);
}
