/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that unified_safetensors of MindSpore makes (parallel/transform_safetensors.py):
 *
 *     part0.safetensors …      whole tensors of the source strategy, without accu_grads*
 *     param_name_map.json      which part each of them is in
 *     hyper_param.safetensors  rank 0's other values, as they are there, accu_grads* included
 *
 * There are as many parts as files of 3 GiB would hold all bytes. The tensors, the largest first,
 * each go to the part that has the least so far. Those of the same size go in the order in which
 * they come up in the files of rank 0, rank 1, … (MindSpore: of the folders as the file system
 * lists them). Parameters that are neither in the strategy nor in rank 0's file are lost; here they
 * are reported in a warning. If rank 0 has no file, parameters that are proved equal on the other
 * ranks are taken.
 */
#include "view/flat.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"

#define PART_BYTES (UINT64_C(3) << 30)

struct unifying {
    struct rfs_view *view;
    const struct rfs_params *whole; /* the planner's */
    uint32_t *position_of;          /* by name id: in the whole parameter list, or RFS_NO_ID */
    unsigned char *done;            /* [whole->n] it is in a part */
    size_t n_names;
    struct flat_parts parts; /* its parameter list is the view's: the whole one, and additions */
    struct rfs_error *err;
};

static void unifying_end(struct unifying *u)
{
    flat_parts_end(&u->parts);
    free(u->position_of);
    free(u->done);
}

/* Names are the source's. */
static bool is_gradient(const char *name)
{
    return strncmp(name, "accu_grads", strlen("accu_grads")) == 0;
}

/* Whether MindSpore takes it into the parts. */
static bool is_parameter(const struct rfs_view *view, const char *name)
{
    return !is_gradient(name) && (!view->src || rfs_strategy_find(view->src, name) >= 0);
}

/* Room for all, and a parameter list to which rank 0's own values can be added. */
static int prepare(struct unifying *u)
{
    struct rfs_catalog *catalog = u->view->catalog;
    const struct rfs_index *first = rfs_catalog_ready(catalog, 0);
    const size_t most = u->whole->n + (first ? first->n : 0);
    struct rfs_params *params;

    u->n_names = rfs_intern_count(rfs_catalog_tables(catalog)->names);
    u->position_of = malloc((u->n_names + 1) * sizeof *u->position_of);
    u->done = calloc(u->whole->n + 1, 1);
    params = malloc(sizeof *params + most * sizeof *params->targets);
    u->view->params = params;
    if (!u->position_of || !u->done || !params || !flat_parts_init(&u->parts, params, most))
        return rfs_fail_memory(u->err);
    memcpy(params, u->whole, sizeof *params + u->whole->n * sizeof *params->targets);
    for (size_t i = 0; i < u->n_names; i++)
        u->position_of[i] = RFS_NO_ID;
    for (size_t i = 0; i < u->whole->n; i++)
        u->position_of[u->whole->targets[i].name] = (uint32_t)i;
    return 0;
}

static void take(struct unifying *u, uint32_t position, uint32_t part)
{
    u->parts.part_of[u->parts.n] = part;
    u->parts.targets[u->parts.n++] = position;
    if (position < u->whole->n)
        u->done[position] = 1;
}

struct place {
    uint64_t offset;
    size_t entry;
    uint32_t part;
    uint32_t name;
};

RFS_COMPARE(by_place, struct place, x, y,
            RFS_ORDER(x->part, y->part)
                ?: RFS_ORDER(x->offset, y->offset)
                ?: RFS_ORDER(x->entry, y->entry))

/* The parameters of one rank that did not come up before. */
static int take_of_rank(struct unifying *u, const struct rfs_index *index)
{
    struct rfs_catalog *catalog = u->view->catalog;
    RFS_FREE struct place *places = calloc(index->n + 1, sizeof *places);

    if (!places)
        return rfs_fail_memory(u->err);
    for (size_t i = 0; i < index->n; i++)
        places[i] = (struct place){index->entries[i].offset, i,
                                   index->part_of ? index->part_of[i] : 0, index->entries[i].name};
    /* An index of safetensors files is sorted by name; here MindSpore goes by the header. */
    if (rfs_catalog_format(catalog) == RFS_FORMAT_SAFETENSORS)
        RFS_SORT(places, index->n, by_place);
    for (size_t i = 0; i < index->n; i++) {
        const uint32_t position = u->position_of[places[i].name];
        if (position != RFS_NO_ID && !u->done[position] &&
            is_parameter(u->view, rfs_catalog_name(catalog, places[i].name)))
            take(u, position, 0);
    }
    return 0;
}

/* The parameters, in the order in which they come up; not in parts yet. */
static int take_parameters(struct unifying *u)
{
    const struct rfs_catalog *catalog = u->view->catalog;
    int rc = 0;

    for (uint32_t r = 0; rc == 0 && r < rfs_catalog_ranks(catalog); r++) {
        const struct rfs_index *index = rfs_catalog_ready(catalog, r);
        rc = index ? take_of_rank(u, index) : 0;
    }
    return rc;
}

struct weighed {
    uint64_t bytes;
    size_t order; /* of coming up */
    uint32_t target;
};

RFS_COMPARE(by_weight, struct weighed, x, y,
            RFS_ORDER(y->bytes, x->bytes) ?: RFS_ORDER(x->order, y->order))

static uint32_t lightest(const uint64_t *filled, uint32_t n)
{
    uint32_t least = 0;

    for (uint32_t p = 1; p < n; p++)
        if (filled[p] < filled[least])
            least = p;
    return least;
}

/* Puts the parameters into as many parts as the size of a part requires. */
static int divide(struct unifying *u)
{
    const uint64_t limit = u->view->options.file_size ? u->view->options.file_size : PART_BYTES;
    struct flat_parts *parts = &u->parts;
    RFS_FREE struct weighed *weighed = calloc(parts->n + 1, sizeof *weighed);
    RFS_FREE uint64_t *filled = calloc(parts->n + 1, sizeof *filled);
    uint64_t total = 0;

    if (!weighed || !filled)
        return rfs_fail_memory(u->err);
    for (size_t i = 0; i < parts->n; i++) {
        const uint32_t target = parts->targets[i];
        weighed[i] =
            (struct weighed){flat_bytes(u->view, &parts->params->targets[target]), i, target};
        total += weighed[i].bytes;
    }
    RFS_SORT(weighed, parts->n, by_weight);
    const uint64_t wanted = total / limit + (total % limit != 0);
    parts->n_parts = (uint32_t)(wanted < parts->n ? wanted : parts->n);
    if (parts->n > 0 && parts->n_parts == 0)
        parts->n_parts = 1; /* of nothing but empty tensors, for which MindSpore fails */
    for (size_t i = 0; i < parts->n; i++) {
        const uint32_t part = lightest(filled, parts->n_parts);
        parts->targets[i] = weighed[i].target;
        parts->part_of[i] = part;
        filled[part] += weighed[i].bytes;
    }
    return 0;
}

/* Takes a value of rank 0 as it is there, which the planner would not, into the last part. */
static int take_raw(struct unifying *u, const struct rfs_entry *entry)
{
    struct rfs_params *params = u->view->params;
    struct rfs_target *target = &params->targets[params->n];

    *target = (struct rfs_target){
        .name = entry->name, .type = entry->type, .geometry = RFS_NO_ID, .lengths = RFS_NO_ID};
    const int rc = rfs_planner_show(u->view->planner, target, u->err);
    if (rc || target->shown_name == RFS_NO_ID)
        return rc;
    take(u, (uint32_t)params->n++, u->parts.n_parts - 1);
    return 0;
}

/* Rank 0 is lost: values that the planner proved to be the same elsewhere stand in for its own. */
static void take_proved(struct unifying *u)
{
    for (uint32_t i = 0; i < u->whole->n; i++) {
        const struct rfs_target *target = &u->whole->targets[i];
        const char *name = rfs_catalog_name(u->view->catalog, target->name);
        if (!u->done[i] && target->geometry == RFS_NO_ID && !is_gradient(name))
            take(u, i, u->parts.n_parts - 1);
    }
}

/* Rank 0's values that are no parameters go into a part of their own. */
static int take_rest(struct unifying *u)
{
    const struct rfs_catalog *catalog = u->view->catalog;
    const struct rfs_index *index = rfs_catalog_ready(catalog, 0);

    u->parts.n_parts++;
    if (!rfs_catalog_has(catalog, 0))
        take_proved(u);
    for (size_t i = 0; index && i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        const uint32_t position = u->position_of[entry->name];
        int rc = 0;
        if (position != RFS_NO_ID && u->done[position])
            continue;
        if (position != RFS_NO_ID && u->whole->targets[position].geometry == RFS_NO_ID)
            take(u, position, u->parts.n_parts - 1);
        else
            rc = take_raw(u, entry);
        if (rc)
            return rc;
        if (position != RFS_NO_ID)
            u->done[position] = 1;
    }
    return 0;
}

/* The gradients of the other stages are not missed. */
static void warn_of_lost(const struct unifying *u)
{
    const struct rfs_target *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < u->whole->n; i++)
        if (!u->done[i] &&
            !is_gradient(rfs_catalog_name(u->view->catalog, u->whole->targets[i].name)) && n++ == 0)
            first = &u->whole->targets[i];
    if (first)
        rfs_log(&u->view->log, RFS_WARNING,
                "view=unified takes other values than parameters from rank_0 alone, as "
                "unified_safetensors "
                "does: "
                "%zu value%s that rank_0 lacks %s left out: '%s'%s",
                n, n == 1 ? "" : "s", n == 1 ? "is" : "are",
                rfs_catalog_name(u->view->catalog, first->name), n == 1 ? "" : " and others");
}

static int name_parts(struct unifying *u)
{
    struct flat_parts *parts = &u->parts;

    for (uint32_t p = 0; p < parts->n_parts; p++) {
        parts->names[p] = p + 1 == parts->n_parts ? strdup("hyper_param.safetensors")
                                                  : rfs_text_printf("part%u.safetensors", p);
        if (!parts->names[p])
            return rfs_fail_memory(u->err);
    }
    return 0;
}

int rfs_view_unified(struct rfs_view *view, const struct rfs_params *params, struct rfs_error *err)
{
    RFS_CLEANUP(unifying_end)
    struct unifying u = {.view = view, .whole = params, .err = err, .parts = {.format = "ms"}};

    int rc = prepare(&u)
            ?: take_parameters(&u)
            ?: divide(&u)
            ?: take_rest(&u)
            ?: flat_group(view, &u.parts, 2, err)
            ?: name_parts(&u)
            ?: flat_show_parts(view, &u.parts, err);
    if (rc)
        return rc;
    warn_of_lost(&u);
    return flat_show_map(view, &u.parts, u.parts.n_parts - 1, "param_name_map.json",
                         RFS_WEIGHT_MAP_MINDSPORE, err);
}
