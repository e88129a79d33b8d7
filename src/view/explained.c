/* SPDX-License-Identifier: Apache-2.0 */
#include "view/explained.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/suggest.h"
#include "base/text.h"
#include "formats/chunks/chunks.h"
#include "view/hfai_view.h"

/* ---- the places of a piece ------------------------------------------------------------------- */

const struct rfs_rules_digit *rfs_explained_digits(const struct rfs_explained_view *view,
                                                   const struct rfs_piece_trace *piece)
{
    return rfs_by_rules_map(view->view->rules.made)->digits.data + piece->link->digits;
}

struct rfs_explained_entries rfs_explained_along(const struct rfs_explained_view *view,
                                                 const struct rfs_piece_trace *piece, int side,
                                                 uint32_t number)
{
    const struct rfs_box *box = side == RFS_MADE ? &piece->whole : &piece->source;
    const struct rfs_rules_link *link = piece->link;

    if (!link)
        return (struct rfs_explained_entries){
            .n = 1, .first = box->at[number], .count = {box->len[number]}, .step = {1}};
    const struct rfs_rules_digit *digits = rfs_explained_digits(view, piece);
    struct rfs_explained_entries axis = {
        .first = rfs_by_rules_map(view->view->rules.made)->ats.data[link->at[side] + number]};
    for (uint32_t k = 0; k < link->n; k++) {
        const struct rfs_rules_digit *digit = &digits[k];
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

static void put_entries(FILE *out, const struct rfs_explained_entries *axis, uint64_t size)
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

/* Returns the target of the source tensor of a piece. */
static const struct rfs_target *source_of(const struct rfs_explained_view *view,
                                          const struct rfs_explained *slice,
                                          const struct rfs_piece_trace *piece)
{
    return piece->link ? rfs_by_rules_target(view->view->rules.made, piece->link->source)
                       : slice->target;
}

const char *rfs_explained_name(const struct rfs_explained_view *view,
                               const struct rfs_explained *slice,
                               const struct rfs_piece_trace *piece)
{
    return rfs_catalog_name(view->view->catalog, source_of(view, slice, piece)->name);
}

const uint64_t *rfs_explained_dims(const struct rfs_explained_view *view,
                                   const struct rfs_explained *slice,
                                   const struct rfs_piece_trace *piece, int side, uint32_t *ndim)
{
    const struct rfs_type *type = rfs_catalog_type(
        view->view->catalog, piece->link ? source_of(view, slice, piece)->type : piece->type);

    if (side == RFS_MADE)
        type = piece->link ? &slice->made->type : slice->type;
    *ndim = type->ndim;
    return side == RFS_MADE && !piece->link ? slice->whole : type->dims;
}

void rfs_explained_put_place(FILE *out, const struct rfs_explained_view *view,
                             const struct rfs_explained *slice, const struct rfs_piece_trace *piece,
                             int side)
{
    uint32_t ndim;
    const uint64_t *dims = rfs_explained_dims(view, slice, piece, side, &ndim);

    fputc('[', out);
    for (uint32_t a = 0; a < ndim; a++) {
        const struct rfs_explained_entries axis = rfs_explained_along(view, piece, side, a);
        fputs(a > 0 ? ", " : "", out);
        put_entries(out, &axis, dims[a]);
    }
    fputc(']', out);
}

/* ---- hfai's parts ---------------------------------------------------------------------------- */

struct rfs_explained_parts {
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

static uint32_t add_type(struct rfs_explained_view *view, const struct rfs_type *type)
{
    return rfs_intern_add(rfs_catalog_tables(view->view->catalog)->types, type, sizeof *type);
}

static bool number_files(struct rfs_explained_parts *parts, struct rfs_catalog *catalog, uint32_t n)
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

static int parts_open(struct rfs_explained_view *view, struct rfs_error *err)
{
    struct rfs_explained_parts *parts = view->parts = calloc(1, sizeof *parts);
    const struct rfs_hfai_division *division;
    const struct rfs_hfai *hfai;

    if (!parts)
        return rfs_fail_memory(err);
    parts->tensor = SIZE_MAX;
    rfs_view_hfai_parts(view->view, &hfai, &division);
    view->n_sources = rfs_hfai_parts(hfai);
    const int rc = rfs_hfai_list(hfai, &parts->list, err);
    if (rc)
        return rc;
    parts->held = calloc(parts->list.tensors.n + 1, sizeof *parts->held);
    if (!parts->held || !number_files(parts, view->view->catalog, view->n_sources))
        return rfs_fail_memory(err);
    return rfs_hfai_hold(division, &parts->list, parts->held, err);
}

static void parts_free(struct rfs_explained_parts *parts)
{
    if (!parts)
        return;
    rfs_hfai_list_free(&parts->list);
    rfs_slice_free(&parts->whole);
    free(parts->held);
    free(parts->part_of);
    free(parts);
}

/* Returns the number of the tensor of that name; SIZE_MAX: there is none. */
static size_t find_tensor(const struct rfs_explained_parts *parts, const char *name)
{
    for (size_t i = 0; i < parts->list.tensors.n; i++)
        if (strcmp(parts->list.tensors.data[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

/* Returns whether a destination part has something of a tensor. */
static bool has_tensor(const struct rfs_explained_parts *parts, size_t tensor, uint32_t part)
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

static int begin_tensor(struct rfs_explained_view *view, size_t number)
{
    struct rfs_explained_parts *parts = view->parts;
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
                 view->n_sources);
    else
        snprintf(parts->sides[0], sizeof parts->sides[0], "whole");
    say_side(parts->sides[1], parts->held[number], view->n_ranks);
    parts->target =
        (struct rfs_target){.name = rfs_intern_add(rfs_catalog_tables(view->view->catalog)->names,
                                                   tensor->name, strlen(tensor->name)),
                            .shown_type = add_type(view, &tensor->type)};
    parts->target.shown_name = parts->target.name;
    parts->tensor = number;
    return parts->target.name == RFS_NO_ID || parts->target.shown_type == RFS_NO_ID ? -ENOMEM : 0;
}

/* Adds the type of N elements as a row. Returns its id, or RFS_NO_ID. */
static uint32_t row_type(struct rfs_explained_view *view, const struct rfs_hfai_listed *tensor,
                         uint64_t n)
{
    const struct rfs_type type = {.bytes = n * rfs_dtype_bytes((enum rfs_dtype)tensor->type.dtype),
                                  .ndim = 1,
                                  .dtype = tensor->type.dtype,
                                  .kind = RFS_TENSOR,
                                  .dims = {n}};

    return add_type(view, &type);
}

/* Sets the piece of a tensor that is copied from one file. */
static void set_copy(const struct rfs_explained_parts *parts, const struct rfs_hfai_listed *tensor,
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
static void set_row(struct rfs_explained_view *view, const struct rfs_hfai_listed *tensor,
                    uint64_t begin, uint64_t end, struct rfs_piece_trace *piece)
{
    const uint64_t item = rfs_dtype_bytes((enum rfs_dtype)tensor->type.dtype);
    const uint64_t first = piece->block.dst / item;
    const uint64_t last = piece->block.dst_end / item;
    const uint64_t lo = rfs_max_u64(begin, first);
    const uint64_t len = rfs_min_u64(end, last) - lo;

    piece->type = row_type(view, tensor, last - first);
    piece->whole = (struct rfs_box){{lo}, {len}};
    piece->source = (struct rfs_box){{lo - first}, {len}};
    piece->target = (struct rfs_box){{lo - begin}, {len}};
    piece->block.dst = (lo - begin) * item;
    piece->block.src += (lo - first) * item;
    piece->block.run = len * item;
    piece->block.dst_end = piece->block.dst + piece->block.run;
}

/* Adds the pieces of elements [begin, end), or of a tensor that is copied. 1 or -ENOMEM. */
static int add_pieces(struct rfs_explained_view *view, const struct rfs_hfai_listed *tensor,
                      uint64_t begin, uint64_t end, struct rfs_explained *slice)
{
    const struct rfs_explained_parts *parts = view->parts;
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
            set_row(view, tensor, begin, end, piece);
        if (piece->type == RFS_NO_ID)
            return -ENOMEM;
    }
    return 1;
}

static int slice_part(struct rfs_explained_view *view, size_t number, struct rfs_explained *slice)
{
    struct rfs_explained_parts *parts = view->parts;
    const struct rfs_hfai_listed *tensor = &parts->list.tensors.data[number];
    const bool in_pieces = parts->held[number] == RFS_HFAI_PIECES;
    const int rc = has_tensor(parts, number, slice->rank) ? begin_tensor(view, number) : 0;
    struct rfs_box box = {.at = {0}};

    if (rc || !has_tensor(parts, number, slice->rank))
        return rc;
    uint64_t end = parts->elements;
    if (in_pieces)
        rfs_hfai_chunk(end, view->n_ranks, slice->rank, &box.at[0], &end);
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
        slice->copied ? parts->target.shown_type : row_type(view, tensor, box.len[0]);
    if (in_pieces)
        parts->target.shown_type = parts->target.type;
    if (parts->target.type == RFS_NO_ID || (!slice->copied && !RFS_PUSH(&slice->boxes, box)))
        return -ENOMEM;
    return add_pieces(view, tensor, box.at[0], end, slice);
}

/* ---- the file that shows a slice ------------------------------------------------------------- */

/* A byte of a shown file. */
struct location {
    const char *folder, *name; /* FOLDER is NULL for hfai's parts */
    uint64_t offset;
};

/*
 * Finds the shown file that holds a target of a planned rank, and where its bytes begin there. 1; 0
 * where ranks have no file of their own, or the target no bytes; or -errno.
 */
static int find_shown(struct rfs_view *view, uint32_t rank, uint32_t target, struct location *out)
{
    const struct rfs_image *image;

    if (!view->kind->by_rank || rank >= view->n_files)
        return 0;
    const int rc = rfs_view_image(view, rank, &image, NULL);
    if (rc)
        return rc;
    for (size_t i = 0; i < image->n; i++)
        if (image->regions[i].target == target && image->regions[i].at == 0) {
            *out = (struct location){view->folders[rank].name, view->files[rank].name,
                                     image->regions[i].start};
            return 1;
        }
    return 0;
}

/*
 * Returns whether the next ranges of an item are the bytes of the pieces; sets where these begin in
 * the first range.
 */
static bool is_stored(const struct rfs_storage_range *ranges, size_t left,
                      const struct rfs_piece_trace *pieces, size_t n, uint64_t *in)
{
    const struct rfs_block *first = &pieces[0].block;
    const uint64_t begin = first->content.offset + first->src;

    if (n > left || ranges[0].file != first->file || begin < ranges[0].offset ||
        begin - ranges[0].offset + first->run > ranges[0].bytes ||
        (n > 1 && begin - ranges[0].offset + first->run < ranges[0].bytes))
        return false;
    for (size_t i = 1; i < n; i++)
        if (ranges[i].file != pieces[i].block.file || ranges[i].bytes != pieces[i].block.run ||
            ranges[i].offset != pieces[i].block.content.offset + pieces[i].block.src)
            return false;
    *in = begin - ranges[0].offset;
    return true;
}

/* Finds where the pieces begin in an item; false if they are not in it. */
static bool find_stored(const struct rfs_storages *storages, uint32_t item,
                        const struct rfs_piece_trace *pieces, size_t n, uint64_t *in)
{
    const struct rfs_storage_item *of = &storages->items.data[item];
    uint64_t at = 0;

    for (size_t r = 0; r < of->n; r++) {
        const struct rfs_storage_range *ranges = &storages->ranges.data[of->first + r];
        if (is_stored(ranges, of->n - r, pieces, n, in)) {
            *in += at;
            return true;
        }
        at += ranges[0].bytes;
    }
    return false;
}

/*
 * Finds where one of hfai's parts holds a tensor, by the N pieces of the tensor in it. 1; 0 where it
 * has no bytes, or they do not lie there in a row; or -errno.
 */
static int find_part(struct rfs_view *view, uint32_t part, const struct rfs_piece_trace *pieces,
                     size_t n, struct location *out)
{
    const struct rfs_image *image;
    uint64_t in = 0;

    for (size_t i = 0; i < n; i++)
        if (pieces[i].block.n_loops > 0)
            return 0;
    if (n == 0)
        return 0;
    const int rc = rfs_view_image(view, part, &image, NULL);
    if (rc)
        return rc;
    for (size_t i = 0; i < image->n; i++)
        if (image->regions[i].target < image->storages->items.n && image->regions[i].at == 0 &&
            find_stored(image->storages, image->regions[i].target, pieces, n, &in)) {
            *out = (struct location){NULL, view->files[part].name, image->regions[i].start + in};
            return 1;
        }
    return 0;
}

/* ---- whether a rank has the parameter -------------------------------------------------------- */

/* Finds the parameter by the name that the file shows, or else by the source's. */
static const struct rfs_target *find_target(struct rfs_explained_view *view,
                                            const struct rfs_params *params)
{
    struct rfs_catalog *catalog = view->view->catalog;

    if (params == view->params)
        return view->target;
    view->params = params;
    view->target = NULL;
    for (size_t i = 0; i < params->n; i++) {
        const struct rfs_target *target = &params->targets[i];
        if (strcmp(rfs_catalog_name(catalog, target->shown_name), view->param) == 0)
            return view->target = target;
        if (!view->target && strcmp(rfs_catalog_name(catalog, target->name), view->param) == 0)
            view->target = target;
    }
    return view->target;
}

/* Returns the name of a parameter that is close to the requested one; NULL: there is none. */
static const char *closest_name(const struct rfs_explained_view *view)
{
    const struct rfs_params *params =
        rfs_planner_ready(view->view->planner, view->selected[0])->params;
    struct rfs_suggest suggest = rfs_suggest_begin(view->param, RFS_SUGGEST_WORD);

    for (size_t i = 0; i < params->n; i++)
        rfs_suggest_offer(&suggest,
                          rfs_catalog_name(view->view->catalog, params->targets[i].shown_name));
    return suggest.nearest;
}

/* Fails, and says where the parameter is, if the strategies know it. */
static int nobody_has(const struct rfs_explained_view *view, struct rfs_error *err)
{
    const struct rfs_strategy *dst = view->view->dst;
    const ptrdiff_t at = dst ? rfs_strategy_find(dst, view->param) : -1;
    const struct rfs_where where = RFS_OF(view->path, view->param);
    const bool some = view->some;
    const char *closest = !view->parts && at < 0 ? closest_name(view) : NULL;
    char absence[64];
    char remedy[256];

    if (view->one)
        snprintf(absence, sizeof absence, "%s%s%u of the destination does not have it",
                 view->words->one, view->parts ? " " : "_", view->selected[0]);
    else
        snprintf(absence, sizeof absence,
                 some ? "none of these destination %ss has it" : "no destination %s has it",
                 view->words->one);
    if (!view->parts && at >= 0 && some) {
        const uint32_t stage = rfs_strategy_next_stage(dst, (size_t)at, 0);
        const uint32_t devices = rfs_strategy_devices(dst);
        snprintf(remedy, sizeof remedy, "--ranks %u-%u", stage * devices,
                 (stage + 1) * devices - 1);
        return rfs_fail(err, -ENOENT, where, remedy, "%s; stage %u has", absence, stage);
    }
    if (view->parts && view->tensor != SIZE_MAX)
        snprintf(remedy, sizeof remedy, "--rank %u, which has it", view->parts->held[view->tensor]);
    else if (closest)
        snprintf(remedy, sizeof remedy, "--param '%s'", closest);
    else
        snprintf(remedy, sizeof remedy, "%s",
                 view->parts ? "reshard stats, which lists the names"
                 : view->view->rules.made
                     ? "reshard convert check with --list, which lists the names"
                     : "reshard info, which lists the names");
    return rfs_fail(err, -ENOENT, where, remedy, "%s", absence);
}

int rfs_explained_check(struct rfs_explained_view *view, struct rfs_error *err)
{
    if (view->parts) {
        view->tensor = find_tensor(view->parts, view->param);
        for (size_t i = 0; view->tensor != SIZE_MAX && i < view->n_selected; i++)
            if (has_tensor(view->parts, view->tensor, view->selected[i]))
                return 0;
        return nobody_has(view, err);
    }
    for (size_t i = 0; i < view->n_selected; i++)
        if (find_target(view, rfs_planner_ready(view->view->planner, view->selected[i])->params))
            return 0;
    return nobody_has(view, err);
}

/* ---- a slice --------------------------------------------------------------------------------- */

static int trace_target(const struct rfs_explained_view *view, struct rfs_explained *slice)
{
    const struct rfs_by_rules *by_rules = view->view->rules.made;

    slice->made = by_rules ? rfs_by_rules_made(by_rules, slice->target->name) : NULL;
    return rfs_planner_trace(view->view->planner, slice->rank, slice->target, &slice->trace);
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

static void set_types(const struct rfs_explained_view *view, struct rfs_explained *slice)
{
    if (!slice->target)
        return;
    slice->type = rfs_catalog_type(view->view->catalog, slice->target->type);
    slice->shown = rfs_catalog_type(view->view->catalog, slice->target->shown_type);
}

/* Sets the cuts of both sides, and the boxes of the slice. False when out of memory. */
static bool set_cuts(const struct rfs_explained_view *view, struct rfs_explained *slice)
{
    const struct rfs_chunks *chunks = rfs_catalog_chunks(view->view->catalog);
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
static bool describe(const struct rfs_explained_view *view, struct rfs_explained *slice,
                     const struct location *at)
{
    struct rfs_catalog *catalog = view->view->catalog;

    slice->name = rfs_catalog_name(catalog, slice->target->name);
    slice->shown_name = rfs_catalog_name(catalog, slice->target->shown_name);
    set_types(view, slice);
    if (!view->parts && !set_cuts(view, slice))
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
static int trace(struct rfs_explained_view *view, struct rfs_explained *slice, struct location *at,
                 struct rfs_error *err)
{
    const struct rfs_rank_plan *plan;
    int rc;

    if (view->parts) {
        rc = slice_part(view, view->tensor, slice);
        if (rc == 1)
            rc = find_part(view->view, slice->rank, slice->trace.pieces, slice->trace.n, at);
        else
            return rc;
        return rc < 0 ? rc : 1;
    }
    rc = rfs_planner_rank(view->view->planner, slice->rank, &plan, err);
    if (rc)
        return rc;
    slice->target = find_target(view, plan->params);
    if (!slice->target)
        return 0;
    rc = trace_target(view, slice)
             ?: find_shown(view->view, slice->rank,
                           (uint32_t)(slice->target - plan->params->targets), at);
    return rc < 0 ? rc : 1;
}

static int explain_rank(struct rfs_explained_view *view, struct rfs_explained *slice,
                        rfs_explained_fn *fn, void *ctx, struct rfs_error *err)
{
    struct location at = {.name = NULL};
    int rc = trace(view, slice, &at, err);

    if (rc == 0 || (rc < 0 && err->code))
        return rc;
    if (rc > 0 && !describe(view, slice, &at))
        rc = -ENOMEM;
    if (rc < 0)
        return rc == -ENOMEM
                   ? rfs_fail_memory(err)
                   : rfs_fail(err, rc, RFS_OF(view->path, view->param), NULL,
                              "cannot be traced for rank_%u: %s", slice->rank, strerror(-rc));
    return fn(ctx, slice, err);
}

static void free_slice(struct rfs_explained *slice)
{
    rfs_trace_free(&slice->trace);
    free(slice->boxes.data);
    free(slice->path);
}

int rfs_explained_each(struct rfs_explained_view *view, rfs_explained_fn *fn, void *ctx,
                       struct rfs_error *err)
{
    struct rfs_explained slice = {0};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < view->n_selected; i++) {
        slice.rank = view->selected[i];
        slice.position = i;
        rc = explain_rank(view, &slice, fn, ctx, err);
    }
    free_slice(&slice);
    return rc;
}

/* ---- the view --------------------------------------------------------------------------------- */

int rfs_explained_open(reshard_view *opened, struct rfs_explained_view *out, struct rfs_error *err)
{
    static const struct rfs_explained_words ranks = {"rank",  "ranks",     "rank",
                                                     "ranks", "from rank", "from ranks"};
    static const struct rfs_explained_words parts = {"part",  "parts",     "part",
                                                     "parts", "from part", "from parts"};
    static const struct rfs_explained_words files = {"rank",  "ranks",     "file",
                                                     "files", "from file", "from files"};
    struct rfs_view *view = rfs_view_only(opened);
    struct rfs_scale scale;

    *out = (struct rfs_explained_view){.view = view};
    if (!view)
        return rfs_fail_usage(err, "-o step=N, or -o epoch=N", "step=all shows several saves");
    if (!view->hfai && !view->dst && view->n_ranks > 1)
        return rfs_fail_usage(err, "-d, or -o dst_rules=",
                              "without a strategy view=dcp divides rows over its files, and ranks "
                              "have no slices");
    const struct rfs_chunks *chunks = rfs_catalog_chunks(view->stored);
    out->path = rfs_catalog_path(view->catalog);
    out->n_ranks = view->n_ranks;
    out->keyed = opened->encrypted != NULL;
    out->chunked = rfs_catalog_chunks(view->catalog) != NULL;
    out->by_rules = view->rules.made != NULL;
    out->in_parts = view->hfai != NULL;
    out->words = view->hfai ? &parts : chunks ? &files : &ranks;
    if (view->hfai)
        return 0;
    rfs_planner_scale(view->rules.whole ? view->rules.whole : view->planner, &scale);
    out->n_sources = chunks ? chunks->n_files : scale.src_devices * scale.src_stages;
    atomic_store(&view->notes.telling, RFS_TELL_ONE_SIDED);
    return 0;
}

void rfs_explained_close(struct rfs_explained_view *view)
{
    parts_free(view->parts);
    view->parts = NULL;
}

struct planning_job {
    struct rfs_explained_view *view;
    struct rfs_error *errors; /* [n_selected] */
};

static int plan_one(void *ctx, size_t i)
{
    const struct planning_job *planned = ctx;
    struct rfs_explained_view *view = planned->view;
    const struct rfs_rank_plan *plan;
    const int rc =
        rfs_planner_rank(view->view->planner, view->selected[i], &plan, &planned->errors[i]);

    rfs_progress_file(view->progress);
    rfs_progress_tick(view->progress);
    return rc;
}

int rfs_explained_plan(struct rfs_explained_view *view, struct rfs_error *err)
{
    if (view->in_parts)
        return parts_open(view, err);
    RFS_FREE struct rfs_error *errors = calloc(view->n_selected, sizeof *errors);
    struct planning_job planned = {view, errors};
    if (!errors)
        return rfs_fail_memory(err);
    rfs_progress_begin(view->progress, "planning", 0, view->n_selected);
    /* The first comes before the others, which are then predicted from its indexes. */
    int rc = plan_one(&planned, 0);
    if (rc == 0 && view->n_selected > 1)
        rc = rfs_pool_for(view->view->set->pool, view->n_selected, plan_one, &planned);
    rfs_progress_end(view->progress);
    for (size_t i = 0; rc && i < view->n_selected; i++)
        if (errors[i].code) {
            *err = errors[i];
            return errors[i].code;
        }
    return rc;
}

/* ---- all parameters -------------------------------------------------------------------------- */

/* A parameter in one parameter list. */
struct occurrence {
    const struct rfs_target *target;
    uint32_t params; /* index in every.param_lists */
};

/* A parameter, in all the lists that have it. */
struct named {
    const struct occurrence *occurrences; /* ascending by params */
    size_t n;
};

/* The parameters of the selected ranks. */
struct every {
    RFS_VEC(const struct rfs_params *) param_lists;
    RFS_VEC(struct occurrence) occurrences; /* ascending by name */
    RFS_VEC(struct named) names;            /* names of one kind are neighbours */
    uint32_t *params_of;                    /* [n_selected] index of each rank's parameter list */
};

RFS_COMPARE(by_name, struct occurrence, x, y,
            RFS_ORDER(x->target->name, y->target->name) ?: RFS_ORDER(x->params, y->params))

/* Compares by the lists that have the name, then by the members that decide a trace. */
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

static bool list_all(struct every *every, const struct rfs_explained_view *view)
{
    every->params_of = calloc(view->n_selected, sizeof *every->params_of);
    for (size_t i = 0; every->params_of && i < view->n_selected; i++)
        if (!add_params(every, rfs_planner_ready(view->view->planner, view->selected[i])->params,
                        &every->params_of[i]))
            return false;
    if (every->params_of && every->occurrences.n > 1)
        RFS_SORT_ALL(&every->occurrences, by_name);
    return every->params_of && group_by_name(every);
}

/* Gives what all ranks of a parameter list take of one of its parameters. */
static int give_occurrence(struct rfs_explained_view *view, const struct rfs_explained_taker *taker,
                           const struct every *every, const struct occurrence *of, uint64_t times,
                           struct rfs_explained *slice)
{
    int rc = 0;

    slice->target = of->target;
    for (size_t i = 0; rc == 0 && i < view->n_selected; i++) {
        if (every->params_of[i] != of->params)
            continue;
        slice->rank = view->selected[i];
        slice->position = i;
        rc = trace_target(view, slice);
        set_types(view, slice);
        if (rc == 0 && !taker->take(taker->ctx, slice, times))
            rc = -ENOMEM;
    }
    return rc;
}

/* Returns how many names from I on have equal pieces. */
static size_t alike(const struct rfs_explained_view *view, const struct every *every, size_t i)
{
    const struct named *first = &every->names.data[i];
    size_t n = 1;

    for (size_t k = 0; k < first->n; k++)
        if (view->view->rules.made ||
            !rfs_trace_is_shared(view->view->planner, first->occurrences[k].target))
            return 1;
    while (i + n < every->names.n && by_kind(first, &first[n]) == 0)
        n++;
    return n;
}

/* Gives what hfai's parts take of all tensors. 0 or -ENOMEM. */
static int give_parts(struct rfs_explained_view *view, const struct rfs_explained_taker *taker,
                      struct rfs_explained *slice)
{
    const size_t n = view->parts->list.tensors.n;
    int rc = 0;

    for (size_t tensor = 0; rc >= 0 && tensor < n; tensor++) {
        for (size_t i = 0; rc >= 0 && i < view->n_selected; i++) {
            slice->rank = view->selected[i];
            slice->position = i;
            rc = slice_part(view, tensor, slice);
            set_types(view, slice);
            if (rc > 0 && !taker->take(taker->ctx, slice, 1))
                rc = -ENOMEM;
        }
        if (rc >= 0 && !taker->end(taker->ctx))
            rc = -ENOMEM;
    }
    return rc < 0 ? -ENOMEM : 0;
}

/* Gives what all ranks take of their parameters. */
static int give_params(struct rfs_explained_view *view, const struct rfs_explained_taker *taker,
                       struct rfs_explained *slice)
{
    struct every every = {0};
    int rc = list_all(&every, view) ? 0 : -ENOMEM;

    rfs_progress_begin(view->progress, "counting", 0, every.occurrences.n);
    for (size_t i = 0, times; rc == 0 && i < every.names.n; i += times) {
        const struct named *named = &every.names.data[i];
        times = alike(view, &every, i);
        for (size_t k = 0; rc == 0 && k < named->n; k++)
            rc = give_occurrence(view, taker, &every, &named->occurrences[k], times, slice);
        if (rc == 0 && !taker->end(taker->ctx))
            rc = -ENOMEM;
        for (size_t k = 0; k < named->n * times; k++)
            rfs_progress_file(view->progress);
        rfs_progress_tick(view->progress);
    }
    rfs_progress_end(view->progress);
    free(every.param_lists.data);
    free(every.occurrences.data);
    free(every.names.data);
    free(every.params_of);
    return rc;
}

int rfs_explained_all(struct rfs_explained_view *view, const struct rfs_explained_taker *taker,
                      struct rfs_error *err)
{
    struct rfs_explained slice = {0};
    const int rc = view->parts ? give_parts(view, taker, &slice) : give_params(view, taker, &slice);

    free_slice(&slice);
    if (rc == -ENOMEM)
        return rfs_fail_memory(err);
    return rc ? rfs_fail(err, rc, RFS_IN(view->path), NULL, "a parameter cannot be traced: %s",
                         strerror(-rc))
              : 0;
}

/* ---- the rest -------------------------------------------------------------------------------- */

uint32_t rfs_explained_files(const struct rfs_explained_view *view, uint32_t rank)
{
    return view->parts ? view->n_sources : rfs_planner_ready(view->view->planner, rank)->n_sources;
}

const char *rfs_explained_path(const struct rfs_explained_view *view, uint32_t file)
{
    const char *path = rfs_files_path(rfs_catalog_files(view->view->catalog), file);
    const size_t n = strlen(view->path);

    return strncmp(path, view->path, n) == 0 && path[n] == '/' ? path + n + 1 : path;
}

const struct rfs_type *rfs_explained_type(const struct rfs_explained_view *view,
                                          const struct rfs_piece_trace *piece)
{
    return rfs_catalog_type(view->view->catalog, piece->type);
}

size_t rfs_explained_holders(const struct rfs_explained_view *view,
                             const struct rfs_explained *slice, const struct rfs_piece_trace *piece,
                             enum rfs_holding holding, uint32_t *ranks)
{
    const struct rfs_trace *trace = &slice->trace;
    size_t n = 0;

    for (uint32_t rank = trace->base; rank < trace->base + trace->devices; rank++)
        if (rank != piece->rank &&
            rfs_trace_holding(view->view->planner, slice->target, trace, piece, rank) == holding)
            ranks[n++] = rank;
    return n;
}
