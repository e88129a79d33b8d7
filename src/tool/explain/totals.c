/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/explain/totals.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "tool/common/show.h"
#include "tool/explain/parts.h"
#include "tool/explain/ranges.h"

int rfs_totals_begin(struct rfs_totals *totals, size_t n_ranks, struct rfs_error *err)
{
    *totals = (struct rfs_totals){.n_ranks = n_ranks, .times = 1};
    totals->ranks = calloc(n_ranks + 1, sizeof *totals->ranks);
    return totals->ranks ? 0 : rfs_fail_memory(err);
}

void rfs_totals_free(struct rfs_totals *totals)
{
    for (size_t i = 0; totals->ranks && i < totals->n_ranks; i++)
        free(totals->ranks[i].taken.data);
    free(totals->now.data);
    free(totals->boxes.data);
    free(totals->ranks);
    free(totals->together.data);
    *totals = (struct rfs_totals){0};
}

static bool take(struct rfs_takings *takings, uint32_t file, uint32_t rank, uint64_t bytes)
{
    const size_t low = RFS_BISECT(i, takings->n, takings->data[i].file >= file);

    if (low == takings->n || takings->data[low].file != file) {
        if (!RFS_PUSH(takings, (struct rfs_taken){0}))
            return false;
        memmove(takings->data + low + 1, takings->data + low,
                (takings->n - 1 - low) * sizeof *takings->data);
        takings->data[low] = (struct rfs_taken){file, rank, 0};
    }
    takings->data[low].bytes += bytes;
    return true;
}

/* The digits of a part: those of its link number its elements, and no other link has these. */
static bool add_digits(struct rfs_totals *totals, const struct rfs_explained *slice,
                       const struct rfs_explained_part *part)
{
    struct rfs_totals_box of = {.file = part->block.file,
                                .rank = part->rank,
                                .ndim = part->link->n,
                                .item = rfs_dtype_bytes((enum rfs_dtype)slice->made->type.dtype),
                                .link = part->link};

    for (uint32_t k = 0; k < part->link->n; k++) {
        of.box.at[k] = part->span.first[k];
        of.box.len[k] = part->span.end[k] - part->span.first[k];
    }
    return RFS_PUSH(&totals->now, of);
}

/* The box of a piece in what its file holds; a row of bytes for values that are not tensors. */
static bool add_box(struct rfs_totals *totals, const struct rfs_explain *explain,
                    const struct rfs_piece_trace *piece)
{
    const struct rfs_type *type = rfs_catalog_type(explain->plans.catalog, piece->type);
    struct rfs_totals_box of = {piece->block.file, piece->rank, 1, 1, NULL, {.len = {type->bytes}}};

    if (type->kind == RFS_TENSOR) {
        of.ndim = type->ndim;
        of.item = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
        /* A file may have several chunks of the tensor: they differ in the whole tensor alone. */
        of.box = rfs_catalog_chunks(explain->plans.catalog) ? piece->whole : piece->source;
    }
    for (uint32_t i = 0; i < of.ndim; i++)
        if (piece->repeated >> i & 1) {
            of.box.at[i] = 0;
            of.box.len[i] = 1;
        }
    return RFS_PUSH(&totals->now, of);
}

bool rfs_totals_add(struct rfs_totals *totals, const struct rfs_explain *explain,
                    const struct rfs_explained *slice)
{
    struct rfs_totals_rank *rank = &totals->ranks[slice->position];

    rank->parameters += totals->times;
    rank->shown_bytes +=
        rfs_catalog_type(explain->plans.catalog, slice->target->shown_type)->bytes * totals->times;
    for (size_t i = 0; i < slice->trace.n; i++) {
        const struct rfs_piece_trace *piece = &slice->trace.pieces[i];
        if (!take(&rank->taken, piece->block.file, piece->rank,
                  rfs_block_source_bytes(&piece->block) * totals->times) ||
            !add_box(totals, explain, piece))
            return false;
    }
    for (size_t i = 0; i < slice->parts.n; i++) {
        const struct rfs_explained_part *part = &slice->parts.data[i];
        if (!take(&rank->taken, part->block.file, part->rank,
                  rfs_block_source_bytes(&part->block)) ||
            !add_digits(totals, slice, part))
            return false;
    }
    return true;
}

RFS_COMPARE(by_file, struct rfs_totals_box, x, y,
            RFS_ORDER(x->file, y->file) ?: RFS_ORDER(x->link, y->link))

bool rfs_totals_next(struct rfs_totals *totals)
{
    const struct rfs_totals_box *now = totals->now.data;
    const size_t n = totals->now.n;
    uint64_t volume;

    RFS_SORT(totals->now.data, n, by_file);
    for (size_t i = 0, end; i < n; i = end) {
        totals->boxes.n = 0;
        for (end = i; end < n && by_file(&now[end], &now[i]) == 0; end++)
            if (!RFS_PUSH(&totals->boxes, now[end].box))
                return false;
        if (!rfs_chunks_volume(&totals->boxes, now[i].ndim, &volume) ||
            !take(&totals->together, now[i].file, now[i].rank,
                  volume * now[i].item * totals->times))
            return false;
    }
    totals->now.n = 0;
    return true;
}

uint64_t rfs_takings_bytes(const struct rfs_takings *takings)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < takings->n; i++)
        bytes += takings->data[i].bytes;
    return bytes;
}

RFS_COMPARE(by_number, uint32_t, x, y, RFS_ORDER(*x, *y))

/* Sorts them, and keeps one of each. */
static uint32_t *distinct(uint32_t *ranks, size_t all, size_t *n)
{
    RFS_SORT(ranks, all, by_number);
    *n = 0;
    for (size_t i = 0; i < all; i++)
        if (*n == 0 || ranks[*n - 1] != ranks[i])
            ranks[(*n)++] = ranks[i];
    return ranks;
}

uint32_t *rfs_takings_ranks(const struct rfs_takings *takings, size_t *n)
{
    uint32_t *ranks = rfs_printed_memory(calloc(takings->n + 1, sizeof *ranks));

    for (size_t i = 0; i < takings->n; i++)
        ranks[i] = takings->data[i].rank;
    return distinct(ranks, takings->n, n);
}

uint32_t *rfs_explained_ranks(const struct rfs_explained *slice, size_t *n)
{
    uint32_t *ranks =
        rfs_printed_memory(calloc(slice->trace.n + slice->parts.n + 1, sizeof *ranks));

    for (size_t i = 0; i < slice->trace.n; i++)
        ranks[i] = slice->trace.pieces[i].rank;
    for (size_t i = 0; i < slice->parts.n; i++)
        ranks[slice->trace.n + i] = slice->parts.data[i].rank;
    return distinct(ranks, slice->trace.n + slice->parts.n, n);
}

/* ---- all parameters -------------------------------------------------------------------------- */

/* A parameter of a parameter list. */
struct occurrence {
    const struct rfs_target *target;
    uint32_t params; /* position in parameter lists */
};

/* A parameter, in all the lists that have it. */
struct named {
    const struct occurrence *occurrences; /* ascending by params */
    size_t n;
};

struct every {
    RFS_VEC(const struct rfs_params *) param_lists;
    RFS_VEC(struct occurrence) occurrences; /* ascending by name */
    RFS_VEC(struct named) names;            /* those of one kind are neighbours */
    uint32_t *params_of;                    /* [n_selected] position of each rank's */
};

RFS_COMPARE(by_name, struct occurrence, x, y,
            RFS_ORDER(x->target->name, y->target->name) ?: RFS_ORDER(x->params, y->params))

/* By the lists that have them, then by the members that decide a trace. */
static int by_kind(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = RFS_ORDER(x->n, y->n);

    for (size_t i = 0; order == 0 && i < x->n; i++) {
        const struct rfs_target *left = x->occurrences[i].target;
        const struct rfs_target *right = y->occurrences[i].target;
        order = RFS_ORDER(x->occurrences[i].params, y->occurrences[i].params)
                    ?: RFS_ORDER(left->geometry, right->geometry)
                    ?: RFS_ORDER(left->stage, right->stage)
                    ?: RFS_ORDER(left->shown_type, right->shown_type);
    }
    return order;
}

static bool add_params(struct every *every, const struct rfs_params *params, uint32_t *position)
{
    for (*position = 0; *position < every->param_lists.n; ++*position)
        if (every->param_lists.data[*position] == params)
            return true;
    if (!RFS_PUSH(&every->param_lists, params))
        return false;
    for (uint32_t i = 0; i < params->n; i++)
        if (!RFS_PUSH(&every->occurrences, (struct occurrence){&params->targets[i], *position}))
            return false;
    return true;
}

static bool group_by_name(struct every *every)
{
    const struct occurrence *all = every->occurrences.data;

    for (size_t i = 0, end; i < every->occurrences.n; i = end) {
        for (end = i + 1;
             end < every->occurrences.n && all[end].target->name == all[i].target->name; end++)
            continue;
        if (!RFS_PUSH(&every->names, (struct named){&all[i], end - i}))
            return false;
    }
    RFS_SORT_ALL(&every->names, by_kind);
    return true;
}

static bool list_all(struct every *every, const struct rfs_explain *explain)
{
    every->params_of = calloc(explain->n_selected, sizeof *every->params_of);
    for (size_t i = 0; every->params_of && i < explain->n_selected; i++)
        if (!add_params(every,
                        rfs_planner_ready(explain->plans.planner, explain->selected[i])->params,
                        &every->params_of[i]))
            return false;
    if (every->params_of && every->occurrences.n > 1)
        RFS_SORT_ALL(&every->occurrences, by_name);
    return every->params_of && group_by_name(every);
}

/* The bytes that all ranks of a parameter list take of one of its parameters. */
static int add_occurrence(struct rfs_totals *totals, struct rfs_explain *explain,
                          const struct every *every, const struct occurrence *of,
                          struct rfs_explained *slice)
{
    int rc = 0;

    slice->target = of->target;
    for (size_t i = 0; rc == 0 && i < explain->n_selected; i++) {
        if (every->params_of[i] != of->params)
            continue;
        slice->rank = explain->selected[i];
        slice->position = i;
        rc = rfs_explain_trace(explain, slice);
        if (rc == 0 && !rfs_totals_add(totals, explain, slice))
            rc = -ENOMEM;
    }
    return rc;
}

/* How many names from I on have the same pieces. */
static size_t alike(const struct rfs_explain *explain, const struct every *every, size_t i)
{
    const struct named *first = &every->names.data[i];
    size_t n = 1;

    for (size_t k = 0; k < first->n; k++)
        if (explain->plans.converted ||
            !rfs_trace_is_shared(explain->plans.planner, first->occurrences[k].target))
            return 1;
    while (i + n < every->names.n && by_kind(first, &first[n]) == 0)
        n++;
    return n;
}

/* The bytes that all ranks take of a name, and of as many more as are like it. */
static int add_names(struct rfs_totals *totals, struct rfs_explain *explain,
                     const struct every *every, const struct named *named,
                     struct rfs_explained *slice)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < named->n; i++)
        rc = add_occurrence(totals, explain, every, &named->occurrences[i], slice);
    if (rc == 0 && !rfs_totals_next(totals))
        rc = -ENOMEM;
    for (size_t i = 0; i < named->n * totals->times; i++)
        rfs_progress_file(&explain->progress);
    rfs_progress_tick(&explain->progress);
    return rc;
}

/* The bytes that the parts take of a tensor. */
static int add_tensor(struct rfs_totals *totals, struct rfs_explain *explain, size_t tensor,
                      struct rfs_explained *slice)
{
    int rc = 0;

    for (size_t i = 0; rc >= 0 && i < explain->n_selected; i++) {
        slice->rank = explain->selected[i];
        slice->position = i;
        rc = rfs_explain_parts_slice(explain, tensor, slice);
        if (rc > 0 && !rfs_totals_add(totals, explain, slice))
            rc = -ENOMEM;
    }
    return rc < 0 || !rfs_totals_next(totals) ? -ENOMEM : 0;
}

static int all_parts(struct rfs_totals *totals, struct rfs_explain *explain, struct rfs_error *err)
{
    struct rfs_explained slice = {0};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < rfs_explain_parts_tensors(explain->parts); i++)
        rc = add_tensor(totals, explain, i, &slice);
    rfs_trace_free(&slice.trace);
    return rc ? rfs_fail_memory(err) : 0;
}

int rfs_totals_all(struct rfs_totals *totals, struct rfs_explain *explain, struct rfs_error *err)
{
    if (explain->parts)
        return all_parts(totals, explain, err);
    struct every every = {0};
    struct rfs_explained slice = {0};
    int rc = list_all(&every, explain) ? 0 : -ENOMEM;

    rfs_progress_begin(&explain->progress, "counting", 0, every.occurrences.n);
    for (size_t i = 0; rc == 0 && i < every.names.n; i += totals->times) {
        totals->times = alike(explain, &every, i);
        rc = add_names(totals, explain, &every, &every.names.data[i], &slice);
    }
    rfs_progress_end(&explain->progress);
    rfs_explained_free(&slice);
    free(every.param_lists.data);
    free(every.occurrences.data);
    free(every.names.data);
    free(every.params_of);
    if (rc == -ENOMEM)
        return rfs_fail_memory(err);
    return rc ? rfs_fail(err, rc, RFS_IN(rfs_catalog_path(explain->plans.catalog)), NULL,
                         "a parameter cannot be traced: %s", strerror(-rc))
              : 0;
}
