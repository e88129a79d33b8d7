/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/explain/explained.h"

#include "base/checked.h"
#include "base/order.h"
#include "base/suggest.h"
#include "base/text.h"
#include "formats/chunks/chunks.h"
#include "hfai/hfai.h"
#include "tool/common/show.h"

/* ---- the places of a piece ------------------------------------------------------------------- */

/*
 * Entries along an axis: FIRST + Σ i_k * step[k] for all i_k below count[k]; the smallest step
 * first, counts above 1.
 */
struct entries {
    uint32_t n;
    uint64_t first;
    uint64_t count[RFS_RULES_DIGITS];
    uint64_t step[RFS_RULES_DIGITS];
};

/* Returns a link's entries along axis NUMBER of a side's tensor. */
static struct entries entries_of(const struct rfs_explain *explain,
                                 const struct rfs_piece_trace *piece, int side, uint32_t number)
{
    const struct rfs_rules_map *map = rfs_by_rules_map(explain->plans.by_rules);
    const struct rfs_rules_link *link = piece->link;
    struct entries axis = {.first = map->ats.data[link->at[side] + number]};

    for (uint32_t k = 0; k < link->n; k++) {
        const struct rfs_rules_digit *digit = &map->digits.data[link->digits + k];
        const uint64_t count = piece->span.end[k] - piece->span.first[k];
        uint32_t at = axis.n;
        if (digit->axis[side] != number)
            continue;
        axis.first += piece->span.first[k] * digit->step[side];
        if (count == 1)
            continue;
        for (; at > 0 && axis.step[at - 1] > digit->step[side]; at--) {
            axis.step[at] = axis.step[at - 1];
            axis.count[at] = axis.count[at - 1];
        }
        axis.step[at] = digit->step[side];
        axis.count[at] = count;
        axis.n++;
    }
    return axis;
}

static void put_entries(FILE *out, const struct entries *axis, uint64_t size)
{
    const bool rows = axis->n > 0;
    const uint64_t step = rows ? axis->step[0] : 1;
    const uint64_t end = axis->first + (rows ? (axis->count[0] - 1) * step : 0) + 1;

    if (axis->first == 0 && end == size && step == 1)
        fputs(":", out);
    else
        fprintf(out, "%" PRIu64 ":%" PRIu64, axis->first, end);
    if (step > 1)
        fprintf(out, ":%" PRIu64, step);
    for (uint32_t k = 1; k < axis->n; k++)
        fprintf(out, " and %" PRIu64 " more, each %" PRIu64 " further", axis->count[k] - 1,
                axis->step[k]);
}

const struct rfs_target *rfs_explained_source(const struct rfs_explain *explain,
                                              const struct rfs_explained *slice,
                                              const struct rfs_piece_trace *piece)
{
    return piece->link ? rfs_by_rules_target(explain->plans.by_rules, piece->link->source)
                       : slice->target;
}

/* Returns the type of the tensor that a link's places are in. */
static const struct rfs_type *linked_type(const struct rfs_explain *explain,
                                          const struct rfs_explained *slice,
                                          const struct rfs_piece_trace *piece, int side)
{
    return side == RFS_MADE ? &slice->made->type
                            : rfs_catalog_type(explain->plans.catalog,
                                               rfs_explained_source(explain, slice, piece)->type);
}

void rfs_explained_begin(const struct rfs_explain *explain, const struct rfs_explained *slice,
                         const struct rfs_piece_trace *piece, int side, uint64_t *at)
{
    const struct rfs_box *box = side == RFS_MADE ? &piece->whole : &piece->source;

    if (!piece->link)
        memcpy(at, box->at, slice->type->ndim * sizeof *at);
    for (uint32_t a = 0; piece->link && a < linked_type(explain, slice, piece, side)->ndim; a++)
        at[a] = entries_of(explain, piece, side, a).first;
}

void rfs_explained_put_place(FILE *out, const struct rfs_explain *explain,
                             const struct rfs_explained *slice, const struct rfs_piece_trace *piece,
                             int side)
{
    const struct rfs_box *box = side == RFS_MADE ? &piece->whole : &piece->source;

    if (!piece->link) {
        rfs_show_box(out, slice->type->ndim,
                     side == RFS_MADE ? slice->whole
                                      : rfs_catalog_type(explain->plans.catalog, piece->type)->dims,
                     box->at, box->len);
        return;
    }
    const struct rfs_type *type = linked_type(explain, slice, piece, side);
    for (uint32_t a = 0; a < type->ndim; a++) {
        const struct entries axis = entries_of(explain, piece, side, a);
        fputs(a > 0 ? ", " : "[", out);
        put_entries(out, &axis, type->dims[a]);
    }
    fputs(type->ndim > 0 ? "]" : "[]", out);
}

/* ---- hfai's parts ---------------------------------------------------------------------------- */

struct rfs_explain_parts {
    struct rfs_hfai_list list;
    /* [tensors] owned; destination part that has a tensor, or RFS_HFAI_PIECES or RFS_HFAI_EVERY */
    uint32_t *held;
    uint32_t *part_of; /* [files] owned; by id in the catalogue's files */

    /* The tensor that was sliced last. */
    size_t tensor;            /* number of the tensor; SIZE_MAX: none yet */
    struct rfs_target target; /* target of its slice */
    struct rfs_slice whole;
    uint64_t elements;
    char sides[2][64];
};

static uint32_t add_type(struct rfs_explain *explain, const struct rfs_type *type)
{
    return rfs_intern_add(rfs_catalog_tables(explain->plans.catalog)->types, type, sizeof *type);
}

static bool number_files(struct rfs_explain_parts *parts, struct rfs_catalog *catalog, uint32_t n)
{
    uint32_t last = 0;

    for (uint32_t p = 0; p < n; p++)
        if (rfs_catalog_file(catalog, p) > last)
            last = rfs_catalog_file(catalog, p);
    parts->part_of = calloc((size_t)last + 1, sizeof *parts->part_of);
    for (uint32_t p = 0; parts->part_of && p < n; p++)
        parts->part_of[rfs_catalog_file(catalog, p)] = p;
    return parts->part_of != NULL;
}

int rfs_explain_parts_open(struct rfs_explain *explain, struct rfs_error *err)
{
    struct rfs_explain_parts *parts = explain->parts = calloc(1, sizeof *parts);

    if (!parts)
        return rfs_fail_memory(err);
    parts->tensor = SIZE_MAX;
    const int rc = rfs_hfai_list(explain->plans.hfai, &parts->list, err);
    if (rc)
        return rc;
    parts->held = calloc(parts->list.tensors.n + 1, sizeof *parts->held);
    if (!parts->held || !number_files(parts, explain->plans.catalog, explain->n_sources))
        return rfs_fail_memory(err);
    return rfs_hfai_hold(explain->plans.division, &parts->list, parts->held, err);
}

void rfs_explain_parts_free(struct rfs_explain_parts *parts)
{
    if (!parts)
        return;
    rfs_hfai_list_free(&parts->list);
    rfs_slice_free(&parts->whole);
    free(parts->held);
    free(parts->part_of);
    free(parts);
}

size_t rfs_explain_parts_tensors(const struct rfs_explain_parts *parts)
{
    return parts->list.tensors.n;
}

/* Returns the number of the tensor of that name; SIZE_MAX: there is none. */
static size_t find_tensor(const struct rfs_explain_parts *parts, const char *name)
{
    for (size_t i = 0; i < parts->list.tensors.n; i++)
        if (strcmp(parts->list.tensors.data[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

/* Returns whether a destination part has something of a tensor. */
static bool has_tensor(const struct rfs_explain_parts *parts, size_t tensor, uint32_t part)
{
    return parts->held[tensor] >= RFS_HFAI_EVERY || parts->held[tensor] == part;
}

/* ---- the slice of a part --------------------------------------------------------------------- */

static void say_side(char out[64], uint32_t held, uint32_t n)
{
    if (held == RFS_HFAI_PIECES)
        snprintf(out, 64, "a piece in each of %" PRIu32 " part%s", n, n == 1 ? "" : "s");
    else if (held == RFS_HFAI_EVERY)
        snprintf(out, 64, "whole in every part");
    else
        snprintf(out, 64, "whole in part %" PRIu32, held);
}

static int begin_tensor(struct rfs_explain *explain, size_t number)
{
    struct rfs_explain_parts *parts = explain->parts;
    const struct rfs_hfai_listed *tensor = &parts->list.tensors.data[number];

    if (parts->tensor == number)
        return 0;
    const int rc = rfs_slice_storage(&parts->list.storages, (uint32_t)number, &parts->whole);
    if (rc)
        return rc;
    parts->elements = 1;
    for (uint32_t i = 0; i < tensor->type.ndim; i++)
        parts->elements *= tensor->type.dims[i];
    if (tensor->in_pieces || parts->whole.n > 0)
        say_side(parts->sides[0],
                 tensor->in_pieces ? RFS_HFAI_PIECES : parts->part_of[parts->whole.blocks[0].file],
                 explain->n_sources);
    else
        snprintf(parts->sides[0], sizeof parts->sides[0], "whole");
    say_side(parts->sides[1], parts->held[number], explain->plans.n_ranks);
    parts->target = (struct rfs_target){
        .name = rfs_intern_add(rfs_catalog_tables(explain->plans.catalog)->names, tensor->name,
                               strlen(tensor->name)),
        .shown_type = add_type(explain, &tensor->type)};
    parts->target.shown_name = parts->target.name;
    parts->tensor = number;
    return parts->target.name == RFS_NO_ID || parts->target.shown_type == RFS_NO_ID ? -ENOMEM : 0;
}

/* Adds the type of N elements as a row. Returns its id, or RFS_NO_ID. */
static uint32_t row_type(struct rfs_explain *explain, const struct rfs_hfai_listed *tensor,
                         uint64_t n)
{
    const struct rfs_type type = {.bytes = n * rfs_dtype_bytes((enum rfs_dtype)tensor->type.dtype),
                                  .ndim = 1,
                                  .dtype = tensor->type.dtype,
                                  .kind = RFS_TENSOR,
                                  .dims = {n}};

    return add_type(explain, &type);
}

/* Sets the piece of a tensor that is copied from one file. */
static void set_copy(const struct rfs_explain_parts *parts, const struct rfs_hfai_listed *tensor,
                     struct rfs_piece_trace *piece)
{
    const struct rfs_storages *storages = &parts->list.storages;
    const uint32_t strided = storages->items.data[parts->tensor].strided;

    piece->type = parts->target.shown_type;
    memcpy(piece->whole.len, tensor->type.dims, sizeof piece->whole.len);
    piece->source = piece->target = piece->whole;
    for (uint32_t i = 0; strided > 0 && i < tensor->type.ndim; i++)
        piece->repeated |= (uint32_t)(storages->strided.data[strided - 1].stride[i] == 0) << i;
}

/* Sets the piece that its block gives of elements [begin, end), and cuts the block. */
static void set_row(struct rfs_explain *explain, const struct rfs_hfai_listed *tensor,
                    uint64_t begin, uint64_t end, struct rfs_piece_trace *piece)
{
    const uint64_t item = rfs_dtype_bytes((enum rfs_dtype)tensor->type.dtype);
    const uint64_t first = piece->block.dst / item;
    const uint64_t last = piece->block.dst_end / item;
    const uint64_t lo = rfs_max_u64(begin, first);
    const uint64_t len = rfs_min_u64(end, last) - lo;

    piece->type = row_type(explain, tensor, last - first);
    piece->whole = (struct rfs_box){{lo}, {len}};
    piece->source = (struct rfs_box){{lo - first}, {len}};
    piece->target = (struct rfs_box){{lo - begin}, {len}};
    piece->block.dst = (lo - begin) * item;
    piece->block.src += (lo - first) * item;
    piece->block.run = len * item;
    piece->block.dst_end = piece->block.dst + piece->block.run;
}

/* Adds the pieces of elements [begin, end), or of a tensor that is copied. 1 or -ENOMEM. */
static int add_pieces(struct rfs_explain *explain, const struct rfs_hfai_listed *tensor,
                      uint64_t begin, uint64_t end, struct rfs_explained *slice)
{
    const struct rfs_explain_parts *parts = explain->parts;
    const struct rfs_slice *whole = &parts->whole;
    const uint64_t item = rfs_dtype_bytes((enum rfs_dtype)tensor->type.dtype);

    for (size_t i = RFS_BISECT(b, whole->n, whole->blocks[b].dst_end > begin * item);
         i < whole->n && whole->blocks[i].dst < end * item; i++) {
        struct rfs_piece_trace *piece = rfs_trace_add(&slice->trace);
        if (!piece)
            return -ENOMEM;
        piece->block = whole->blocks[i];
        piece->rank = piece->first = parts->part_of[piece->block.file];
        if (slice->copied)
            set_copy(parts, tensor, piece);
        else
            set_row(explain, tensor, begin, end, piece);
        if (piece->type == RFS_NO_ID)
            return -ENOMEM;
    }
    return 1;
}

int rfs_explain_parts_slice(struct rfs_explain *explain, size_t number, struct rfs_explained *slice)
{
    struct rfs_explain_parts *parts = explain->parts;
    const struct rfs_hfai_listed *tensor = &parts->list.tensors.data[number];
    const bool in_pieces = parts->held[number] == RFS_HFAI_PIECES;
    const int rc = has_tensor(parts, number, slice->rank) ? begin_tensor(explain, number) : 0;
    struct rfs_box box = {.at = {0}};

    if (rc || !has_tensor(parts, number, slice->rank))
        return rc;
    uint64_t end = parts->elements;
    if (in_pieces)
        rfs_hfai_chunk(end, explain->plans.n_ranks, slice->rank, &box.at[0], &end);
    box.len[0] = end - box.at[0];
    slice->copied = !in_pieces && !tensor->in_pieces;
    slice->trace.n = slice->boxes.n = 0;
    slice->target = &parts->target;
    slice->whole = slice->copied ? tensor->type.dims : &parts->elements;
    slice->n_dims = tensor->type.ndim;
    slice->dims = tensor->type.dims;
    slice->source = (struct rfs_explained_side){.words = parts->sides[0]};
    slice->destination = (struct rfs_explained_side){.words = parts->sides[1]};
    parts->target.type =
        slice->copied ? parts->target.shown_type : row_type(explain, tensor, box.len[0]);
    if (in_pieces)
        parts->target.shown_type = parts->target.type;
    if (parts->target.type == RFS_NO_ID || (!slice->copied && !RFS_PUSH(&slice->boxes, box)))
        return -ENOMEM;
    return add_pieces(explain, tensor, box.at[0], end, slice);
}

/* ---- whether a rank has the parameter -------------------------------------------------------- */

/* Finds the parameter by the name that the file shows, or else by the source's. */
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

/* Returns the name of a parameter that is close to the requested one; NULL: there is none. */
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

/* Fails, and says where the parameter is, if the strategies know it. */
static int nobody_has(const struct rfs_explain *explain, struct rfs_error *err)
{
    const struct rfs_strategy *dst = explain->plans.dst;
    const ptrdiff_t at = dst ? rfs_strategy_find(dst, explain->param) : -1;
    const struct rfs_where where = RFS_OF(rfs_catalog_path(explain->plans.catalog), explain->param);
    const bool some = explain->ranks.n > 0;
    const char *closest = !explain->parts && at < 0 ? closest_name(explain) : NULL;
    char absence[64];
    char remedy[256];

    if (explain->one)
        snprintf(absence, sizeof absence, "%s%s%u of the destination does not have it",
                 explain->words->one, explain->parts ? " " : "_", explain->selected[0]);
    else
        snprintf(absence, sizeof absence,
                 some ? "none of these destination %ss has it" : "no destination %s has it",
                 explain->words->one);
    if (!explain->parts && at >= 0 && some) {
        const uint32_t stage = rfs_strategy_next_stage(dst, (size_t)at, 0);
        const uint32_t devices = rfs_strategy_devices(dst);
        snprintf(remedy, sizeof remedy, "--ranks %u-%u", stage * devices,
                 (stage + 1) * devices - 1);
        return rfs_fail(err, -ENOENT, where, remedy, "%s; stage %u has", absence, stage);
    }
    if (explain->parts && explain->tensor != SIZE_MAX)
        snprintf(remedy, sizeof remedy, "--rank %u, which has it",
                 explain->parts->held[explain->tensor]);
    else if (closest)
        snprintf(remedy, sizeof remedy, "--param '%s'", closest);
    else
        snprintf(remedy, sizeof remedy, "%s",
                 explain->parts ? "reshard stats, which lists the names"
                 : explain->plans.by_rules
                     ? "reshard convert check with --list, which lists the names"
                     : "reshard info, which lists the names");
    return rfs_fail(err, -ENOENT, where, remedy, "%s", absence);
}

int rfs_explain_check(struct rfs_explain *explain, struct rfs_error *err)
{
    if (explain->parts) {
        explain->tensor = find_tensor(explain->parts, explain->param);
        for (size_t i = 0; explain->tensor != SIZE_MAX && i < explain->n_selected; i++)
            if (has_tensor(explain->parts, explain->tensor, explain->selected[i]))
                return 0;
        return nobody_has(explain, err);
    }
    for (size_t i = 0; i < explain->n_selected; i++)
        if (find_target(explain,
                        rfs_planner_ready(explain->plans.planner, explain->selected[i])->params))
            return 0;
    return nobody_has(explain, err);
}

/* ---- a slice --------------------------------------------------------------------------------- */

int rfs_explain_trace(const struct rfs_explain *explain, struct rfs_explained *slice)
{
    const struct rfs_by_rules *by_rules = explain->plans.by_rules;

    slice->made = by_rules ? rfs_by_rules_made(by_rules, slice->target->name) : NULL;
    return rfs_planner_trace(explain->plans.planner, slice->rank, slice->target, &slice->trace);
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

/* Describes how a chunked source has a tensor. */
static struct rfs_explained_side chunks_of(const struct rfs_chunks *chunks,
                                           struct rfs_explained *slice)
{
    const struct rfs_chunked_tensor *tensor =
        rfs_chunks_find(chunks, slice->name, strlen(slice->name));
    const uint32_t n = tensor ? tensor->n : 0;
    size_t at = (size_t)snprintf(slice->chunks, sizeof slice->chunks, "%" PRIu32 " chunk%s", n,
                                 n == 1 ? "" : "s");

    for (uint32_t i = 0; tensor && tensor->grid && i < slice->type->ndim; i++)
        if (tensor->grid->pieces[i] > 1 && at < sizeof slice->chunks)
            at += (size_t)snprintf(slice->chunks + at, sizeof slice->chunks - at,
                                   ", axis %" PRIu32 " in %" PRIu32, i, tensor->grid->pieces[i]);
    return (struct rfs_explained_side){.words = slice->chunks};
}

/* Sets the cuts of both sides, and the boxes of the slice. False when out of memory. */
static bool set_cuts(const struct rfs_explain *explain, struct rfs_explained *slice)
{
    const struct rfs_chunks *chunks = rfs_catalog_chunks(explain->plans.catalog);
    const struct rfs_trace *trace = &slice->trace;
    const struct rfs_geometry *geometry = trace->geometry;

    slice->copied = !geometry;
    slice->whole = geometry ? geometry->whole : slice->type->dims;
    slice->n_dims = slice->type->ndim;
    slice->dims = slice->whole;
    slice->source = chunks ? chunks_of(chunks, slice)
                           : side_of(trace->src, geometry ? &geometry->src : NULL,
                                     geometry ? geometry->src_dims : NULL);
    slice->destination =
        side_of(trace->dst, geometry ? &geometry->dst : NULL, geometry ? geometry->dst_dims : NULL);
    slice->boxes.n = 0;
    for (uint32_t k = 0; geometry && k < geometry->dst.rounds; k++) {
        struct rfs_box box = {.len = {0}};
        rfs_trace_box(&geometry->dst, geometry->whole, slice->rank % geometry->dst.ranks, k, &box);
        if (!RFS_PUSH(&slice->boxes, box))
            return false;
    }
    return true;
}

/* Sets the rest of a slice whose target and trace are set. False when out of memory. */
static bool describe(const struct rfs_explain *explain, struct rfs_explained *slice,
                     const struct rfs_view_location *at)
{
    struct rfs_catalog *catalog = explain->plans.catalog;

    slice->name = rfs_catalog_name(catalog, slice->target->name);
    slice->shown_name = rfs_catalog_name(catalog, slice->target->shown_name);
    slice->type = rfs_catalog_type(catalog, slice->target->type);
    slice->shown = rfs_catalog_type(catalog, slice->target->shown_type);
    if (!explain->parts && !set_cuts(explain, slice))
        return false;
    free(slice->path);
    slice->path = NULL;
    slice->offset = at->offset;
    if (at->name)
        slice->path = rfs_text_printf("%s%s%s", at->folder ? at->folder : "", at->folder ? "/" : "",
                                      at->name);
    return !at->name || slice->path;
}

/* Traces a slice: 1, 0 if its rank lacks it, or -errno with *err filled or not. */
static int trace(struct rfs_explain *explain, struct rfs_explained *slice,
                 struct rfs_view_location *at, struct rfs_error *err)
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
    struct rfs_view_location at = {.name = NULL};
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
