/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/explain/explained.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/options.h"
#include "base/order.h"
#include "base/suggest.h"
#include "base/text.h"
#include "formats/chunks/chunks.h"
#include "plan/by_rules.h"
#include "reshard.h"
#include "view/hfai_view.h"

/* ---- bytes of each source file --------------------------------------------------------------- */

/* Returns the path of a source file below the source's folder. */
static const char *path_of(const struct rfs_explained_view *view, uint32_t file)
{
    const char *path = rfs_files_path(rfs_catalog_files(view->of.catalog), file);
    const size_t n = strlen(view->path);

    return strncmp(path, view->path, n) == 0 && path[n] == '/' ? path + n + 1 : path;
}

/* The box that is taken of a parameter in a file. */
struct taken {
    uint32_t file, rank, ndim;
    uint64_t item; /* bytes of an element */
    /* the link whose digits are the axes of the box; NULL: they are a tensor's */
    const struct rfs_rules_link *link;
    const struct rfs_quant *quant; /* the elements are stored as codes; or NULL */
    struct rfs_box box;
};

/* Sums in the making. */
struct sum {
    const struct rfs_explained_view *view;
    struct rfs_explained_totals *totals;
    uint64_t times; /* parameters that are counted at once, as they are like the current one */
    RFS_VEC(struct taken) now;        /* boxes of the current parameter */
    struct rfs_explained_boxes boxes; /* scratch: boxes of one file */
};

/* Begins with nothing; *SUM is to be ended in any case. Returns false when out of memory. */
static bool sum_begin(const struct rfs_explained_view *view, struct rfs_explained_totals *totals,
                      struct sum *sum)
{
    *totals = (struct rfs_explained_totals){.n_ranks = view->n_selected};
    *sum = (struct sum){.view = view, .totals = totals, .times = 1};
    totals->ranks = calloc(view->n_selected + 1, sizeof *totals->ranks);
    return totals->ranks != NULL;
}

static void sum_end(struct sum *sum)
{
    free(sum->now.data);
    free(sum->boxes.data);
}

void rfs_explained_totals_free(struct rfs_explained_totals *totals)
{
    for (size_t i = 0; totals->ranks && i < totals->n_ranks; i++)
        free(totals->ranks[i].sources.data);
    free(totals->ranks);
    free(totals->together.data);
    *totals = (struct rfs_explained_totals){0};
}

/* Adds N bytes of a file. False when out of memory. */
static bool count_bytes(const struct rfs_explained_view *view,
                        struct rfs_explained_sources *sources, uint32_t file, uint32_t rank,
                        uint64_t n)
{
    const size_t low = RFS_BISECT(i, sources->n, sources->data[i].file >= file);

    if (low == sources->n || sources->data[low].file != file) {
        if (!RFS_PUSH(sources, (struct rfs_explained_source){0}))
            return false;
        memmove(sources->data + low + 1, sources->data + low,
                (sources->n - 1 - low) * sizeof *sources->data);
        sources->data[low] = (struct rfs_explained_source){file, rank, path_of(view, file), 0};
    }
    sources->data[low].bytes += n;
    sources->bytes += n;
    return true;
}

/*
 * Adds the digits of a piece as a box: they number the elements of its link, which no other link
 * has.
 */
static bool add_span(struct sum *sum, const struct rfs_explained *slice,
                     const struct rfs_piece_trace *piece)
{
    struct taken of = {.file = piece->block.file,
                       .rank = piece->rank,
                       .ndim = piece->link->n,
                       .item = rfs_dtype_bytes((enum rfs_dtype)slice->by->type.dtype),
                       .link = piece->link,
                       .quant = piece->block.content.quant};

    for (uint32_t k = 0; k < piece->link->n; k++) {
        of.box.at[k] = piece->span.first[k];
        of.box.len[k] = piece->span.end[k] - piece->span.first[k];
    }
    return RFS_PUSH(&sum->now, of);
}

/* Adds the box of a piece in its file; a value that is no tensor is a row of bytes. */
static bool add_box(struct sum *sum, const struct rfs_piece_trace *piece)
{
    const struct rfs_type *type = rfs_catalog_type(sum->view->of.catalog, piece->type);
    struct taken of = {.file = piece->block.file,
                       .rank = piece->rank,
                       .ndim = 1,
                       .item = 1,
                       .quant = piece->block.content.quant,
                       .box = {.len = {type->bytes}}};

    if (type->kind == RFS_TENSOR) {
        of.ndim = type->ndim;
        of.item = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
        /* A file may have several chunks of the tensor: they differ in the whole tensor alone. */
        of.box = sum->view->chunked ? piece->whole : piece->source;
    }
    for (uint32_t i = 0; i < of.ndim; i++)
        if (piece->repeated >> i & 1) {
            of.box.at[i] = 0;
            of.box.len[i] = 1;
        }
    return RFS_PUSH(&sum->now, of);
}

/* Adds a slice of the current parameter. False when out of memory. */
static bool sum_add(struct sum *sum, const struct rfs_explained *slice)
{
    struct rfs_explained_rank *rank = &sum->totals->ranks[slice->position];

    rank->parameters += sum->times;
    rank->shown_bytes += slice->shown->bytes * sum->times;
    for (size_t i = 0; i < slice->trace->n; i++) {
        const struct rfs_piece_trace *piece = &slice->trace->pieces[i];
        if (piece->block.content.zeros)
            continue;
        if (!count_bytes(sum->view, &rank->sources, piece->block.file, piece->rank,
                         rfs_explained_block_bytes(&piece->block) * sum->times) ||
            !(piece->link ? add_span(sum, slice, piece) : add_box(sum, piece)))
            return false;
    }
    return true;
}

RFS_COMPARE(by_file, struct taken, x, y, RFS_ORDER(x->file, y->file) ?: RFS_ORDER(x->link, y->link))

/* Ends the current parameter: adds it to TOGETHER. False when out of memory. */
static bool sum_next(struct sum *sum)
{
    const struct taken *now = sum->now.data;
    const size_t n = sum->now.n;
    uint64_t volume;

    RFS_SORT(sum->now.data, n, by_file);
    for (size_t i = 0, end; i < n; i = end) {
        sum->boxes.n = 0;
        for (end = i; end < n && by_file(&now[end], &now[i]) == 0; end++)
            if (!RFS_PUSH(&sum->boxes, now[end].box))
                return false;
        if (!rfs_explained_boxes_volume(&sum->boxes, now[i].ndim, &volume) ||
            !count_bytes(sum->view, &sum->totals->together, now[i].file, now[i].rank,
                         rfs_explained_stored_bytes(now[i].quant, volume * now[i].item) *
                             sum->times))
            return false;
    }
    sum->now.n = 0;
    return true;
}

/* ---- hfai's parts ---------------------------------------------------------------------------- */

struct rfs_explained_parts {
    struct rfs_view_hfai_list of; /* all tensors, those that are cut as rows */
    /* [tensors] owned; destination part that has a tensor, or RFS_HFAI_PIECES or RFS_HFAI_EVERY */
    uint32_t *held;
    struct rfs_target target; /* target of the slice at hand, and what is said of both sides */
    char sides[2][64];
};

static uint32_t add_type(struct rfs_explained_view *view, const struct rfs_type *type)
{
    return rfs_intern_add(rfs_catalog_tables(view->of.catalog)->types, type, sizeof *type);
}

static int parts_open(struct rfs_explained_view *view, struct rfs_error *err)
{
    struct rfs_explained_parts *parts = view->parts = calloc(1, sizeof *parts);

    if (!parts)
        return rfs_fail_memory(err);
    view->n_sources = rfs_catalog_ranks(view->of.catalog);
    const int rc = rfs_view_hfai_list(view->view, RFS_VIEW_HFAI_ROWS, &parts->of, err);
    if (rc)
        return rc;
    parts->held = calloc(parts->of.tensors.params->n + 1, sizeof *parts->held);
    return parts->held ? rfs_hfai_hold(parts->of.division, &parts->of.state, parts->held, err)
                       : rfs_fail_memory(err);
}

static void parts_free(struct rfs_explained_parts *parts)
{
    if (!parts)
        return;
    rfs_view_hfai_list_free(&parts->of);
    free(parts->held);
    free(parts);
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

/* Says how both sides have a tensor. */
static void say_sides(const struct rfs_explained_view *view, size_t number,
                      struct rfs_explained *slice)
{
    struct rfs_explained_parts *parts = view->parts;
    const struct rfs_chunks *chunks = rfs_catalog_chunks(parts->of.tensors.catalog);
    const struct rfs_chunked_tensor *tensor = &chunks->tensors.data[number];

    if (parts->of.state.tensors.data[number].in_pieces)
        say_side(parts->sides[0], RFS_HFAI_PIECES, view->n_sources);
    else if (tensor->n > 0)
        say_side(parts->sides[0], chunks->chunks.data[tensor->first].file - chunks->first_file,
                 view->n_sources);
    else
        snprintf(parts->sides[0], sizeof parts->sides[0], "whole");
    say_side(parts->sides[1], parts->held[number], view->n_ranks);
    slice->source = (struct rfs_explained_side){.words = parts->sides[0]};
    slice->destination = (struct rfs_explained_side){.words = parts->sides[1]};
}

/* Makes the slice that a part has of a tensor: 1, 0 if it has none, or -errno. */
static int slice_part(struct rfs_explained_view *view, size_t number, struct rfs_explained *slice)
{
    struct rfs_explained_parts *parts = view->parts;
    const struct rfs_hfai_listed *tensor = &parts->of.state.tensors.data[number];
    const struct rfs_target *whole = &parts->of.tensors.params->targets[number];
    const struct rfs_type *type = rfs_catalog_type(parts->of.tensors.catalog, whole->type);
    const bool in_pieces = parts->held[number] == RFS_HFAI_PIECES;
    uint64_t row[2] = {0, type->dims[0]};

    if (!has_tensor(parts, number, slice->rank))
        return 0;
    parts->target = *whole;
    parts->target.shown_type = add_type(view, &tensor->type);
    if (in_pieces) {
        struct rfs_type piece = *type;
        rfs_hfai_chunk(row[1], view->n_ranks, slice->rank, &row[0], &row[1]);
        piece.dims[0] = row[1] - row[0];
        piece.bytes = piece.dims[0] * rfs_dtype_bytes((enum rfs_dtype)piece.dtype);
        parts->target.type = parts->target.shown_type = add_type(view, &piece);
    }
    slice->target = &parts->target;
    slice->copied = !in_pieces && !tensor->in_pieces;
    slice->whole = type->dims;
    slice->n_dims = tensor->type.ndim;
    slice->dims = tensor->type.dims;
    slice->boxes.n = 0;
    say_sides(view, number, slice);
    if (parts->target.type == RFS_NO_ID || parts->target.shown_type == RFS_NO_ID ||
        (!slice->copied && !RFS_PUSH(&slice->boxes, (struct rfs_box){{row[0]}, {row[1] - row[0]}})))
        return -ENOMEM;
    const struct rfs_plan_part part = {&row[0], &row[1]};
    slice->trace->n = 0;
    const int rc = !slice->copied && row[0] == row[1]
                       ? 0
                       : rfs_tensors_pieces(&parts->of.tensors, (uint32_t)number,
                                            slice->copied ? NULL : &part, slice->trace);
    return rc ? rc : 1;
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
static int find_shown(const struct rfs_explained_view *view, uint32_t rank, uint32_t target,
                      struct location *out)
{
    RFS_IMAGE_HELD *image = NULL;

    if (!view->of.by_rank || rank >= view->of.n_files)
        return 0;
    const int rc = rfs_view_image(view->view, rank, &image, NULL);
    if (rc)
        return rc;
    for (size_t i = 0; i < image->n; i++)
        if (image->regions[i].target == target && image->regions[i].at == 0) {
            const struct rfs_view_shown shown = rfs_view_shown(view->view, rank);
            *out = (struct location){shown.folder, shown.name, image->regions[i].start};
            return 1;
        }
    return 0;
}

/* Returns whether the bytes of N pieces, which are rows, lie in a storage from byte IN on. */
static bool is_in_storage(const struct rfs_slice *storage, uint64_t in,
                          const struct rfs_piece_trace *pieces, size_t n)
{
    uint64_t from;
    uint64_t left;

    for (size_t i = 0; i < n; i++) {
        const struct rfs_block *piece = &pieces[i].block;
        const struct rfs_block *there = rfs_slice_find(storage, in + piece->dst, &from, &left);
        if (!there || there->file != piece->file || left < piece->run ||
            there->content.offset + from != piece->content.offset + piece->src)
            return false;
    }
    return true;
}

/* Finds where the pieces begin in a storage; false if they are not in it. */
static bool find_in_storage(const struct rfs_slice *storage, const struct rfs_piece_trace *pieces,
                            size_t n, uint64_t *in)
{
    const uint64_t begin = pieces[0].block.content.offset + pieces[0].block.src;
    bool found = false;

    for (size_t i = 0; !found && i < storage->n; i++) {
        const struct rfs_block *block = &storage->blocks[i];
        *in = block->dst + (begin - block->content.offset);
        found = begin >= block->content.offset && is_in_storage(storage, *in, pieces, n);
    }
    return found;
}

/*
 * Finds where one of hfai's parts holds a tensor, by the N pieces of the tensor in it. 1; 0 where
 * it has no bytes, or they do not lie there in a row; or -errno.
 */
static int find_part(struct rfs_view *view, uint32_t part, const struct rfs_piece_trace *pieces,
                     size_t n, struct location *out)
{
    RFS_CLEANUP(rfs_slice_free) struct rfs_slice storage = {0};
    RFS_IMAGE_HELD *image = NULL;
    uint64_t in = 0;

    for (size_t i = 0; i < n; i++)
        if (pieces[i].block.n_loops > 0)
            return 0;
    int rc = n > 0 ? rfs_view_image(view, part, &image, NULL) : 1;
    for (size_t i = 0; rc == 0 && i < image->n; i++) {
        const struct rfs_region *region = &image->regions[i];
        if (region->target >= image->storages->items.n || region->at > 0)
            continue;
        rc = rfs_slice_storage(image->storages, region->target, &storage);
        if (rc == 0 && find_in_storage(&storage, pieces, n, &in)) {
            *out = (struct location){NULL, rfs_view_shown(view, part).name, region->start + in};
            return 1;
        }
    }
    return rc < 0 ? rc : 0;
}

/* ---- whether a rank has the parameter -------------------------------------------------------- */

/* Finds the parameter by the name that the file shows, or else by the source's; RFS_NO_ID: none. */
static uint32_t find_param(struct rfs_explained_view *view, const struct rfs_tensors *list)
{
    if (list->params == view->params)
        return view->found;
    view->params = list->params;
    view->found = RFS_NO_ID;
    for (uint32_t i = 0; i < rfs_tensors_count(list); i++) {
        if (strcmp(rfs_tensors_name(list, i), view->param) == 0)
            return view->found = i;
        const char *name = rfs_catalog_name(list->catalog, rfs_tensors_target(list, i)->name);
        if (view->found == RFS_NO_ID && strcmp(name, view->param) == 0)
            view->found = i;
    }
    return view->found;
}

/* Returns the list of selected rank I, which is planned. */
static struct rfs_tensors list_of(const struct rfs_explained_view *view, size_t i)
{
    struct rfs_tensors list;
    struct rfs_error unused;

    rfs_tensors_of_rank(view->view, view->of.planner, view->selected[i], &list, &unused);
    return list;
}

/* Returns the name of a parameter that is close to the requested one; NULL: there is none. */
static const char *closest_name(const struct rfs_explained_view *view)
{
    const struct rfs_tensors list = list_of(view, 0);
    struct rfs_suggest suggest = rfs_suggest_begin(view->param, RFS_SUGGEST_WORD);

    for (size_t i = 0; i < rfs_tensors_count(&list); i++)
        rfs_suggest_offer(&suggest, rfs_tensors_name(&list, i));
    return suggest.nearest;
}

/* Fails, and says where the parameter is, if the strategies know it. */
static int nobody_has(const struct rfs_explained_view *view, struct rfs_error *err)
{
    const struct rfs_strategy *dst = view->of.dst;
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
    if (view->parts && view->found != RFS_NO_ID)
        snprintf(remedy, sizeof remedy, "--rank %u, which has it", view->parts->held[view->found]);
    else if (closest)
        snprintf(remedy, sizeof remedy, "--param '%s'", closest);
    else
        snprintf(remedy, sizeof remedy, "%s",
                 view->parts         ? "reshard stats, which lists the names"
                 : view->of.by_rules ? "reshard convert check with --list, which lists the names"
                                     : "reshard info, which lists the names");
    return rfs_fail(err, -ENOENT, where, remedy, "%s", absence);
}

/* Returns whether selected rank I has the parameter. */
static bool has_param(struct rfs_explained_view *view, size_t i)
{
    if (view->parts) {
        const uint32_t found = find_param(view, &view->parts->of.tensors);
        return found != RFS_NO_ID && has_tensor(view->parts, found, view->selected[i]);
    }
    const struct rfs_tensors list = list_of(view, i);
    return find_param(view, &list) != RFS_NO_ID;
}

/* Checks that one of the selected ranks has the parameter. 0, or -ENOENT with *err filled. */
static int check_param(struct rfs_explained_view *view, struct rfs_error *err)
{
    for (size_t i = 0; i < view->n_selected; i++)
        if (has_param(view, i))
            return 0;
    return nobody_has(view, err);
}

/* ---- a slice --------------------------------------------------------------------------------- */

/* Traces number I of the list of the slice's rank. */
static int trace_target(const struct rfs_explained_view *view, const struct rfs_tensors *list,
                        uint32_t i, struct rfs_explained *slice)
{
    slice->target = rfs_tensors_target(list, i);
    slice->by =
        view->of.by_rules ? rfs_by_rules_made(view->of.by_rules, slice->target->name) : NULL;
    return rfs_tensors_pieces(list, i, NULL, slice->trace);
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

    for (uint32_t i = 0; tensor && i < slice->type->ndim; i++) {
        const uint32_t pieces = rfs_chunks_pieces(chunks, tensor, i);
        if (pieces > 1 && at < sizeof slice->chunks)
            at += (size_t)snprintf(slice->chunks + at, sizeof slice->chunks - at,
                                   ", axis %" PRIu32 " in %" PRIu32, i, pieces);
    }
    return (struct rfs_explained_side){.words = slice->chunks};
}

static void set_types(const struct rfs_explained_view *view, struct rfs_explained *slice)
{
    if (!slice->target)
        return;
    slice->type = rfs_catalog_type(view->of.catalog, slice->target->type);
    slice->shown = rfs_catalog_type(view->of.catalog, slice->target->shown_type);
}

/* Sets the cuts of both sides, and the boxes of the slice. False when out of memory. */
static bool set_cuts(const struct rfs_explained_view *view, struct rfs_explained *slice)
{
    const struct rfs_chunks *chunks = rfs_catalog_chunks(view->of.catalog);
    const struct rfs_trace *trace = slice->trace;
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
        rfs_grid_box(&geometry->dst, geometry->whole, slice->rank % geometry->dst.ranks, k, &box);
        if (!RFS_PUSH(&slice->boxes, box))
            return false;
    }
    return true;
}

/* Sets the rest of a slice whose target and trace are set. False when out of memory. */
static bool describe(const struct rfs_explained_view *view, struct rfs_explained *slice,
                     const struct location *at)
{
    struct rfs_catalog *catalog = view->of.catalog;

    slice->name = rfs_catalog_name(catalog, slice->target->name);
    slice->shown_name = rfs_catalog_name(catalog, slice->target->shown_name);
    slice->n = slice->trace->n;
    slice->made = slice->by != NULL;
    slice->rule_file = slice->by ? slice->by->file : NULL;
    slice->rule_line = slice->by ? slice->by->line : 0;
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
    struct rfs_tensors list;
    int rc;

    if (view->parts) {
        rc = slice_part(view, view->found, slice);
        if (rc == 1)
            rc = find_part(view->view, slice->rank, slice->trace->pieces, slice->trace->n, at);
        else
            return rc;
        return rc < 0 ? rc : 1;
    }
    rc = rfs_tensors_of_rank(view->view, view->of.planner, slice->rank, &list, err);
    if (rc)
        return rc;
    const uint32_t i = find_param(view, &list);
    if (i == RFS_NO_ID)
        return 0;
    rc = trace_target(view, &list, i, slice) ?: find_shown(view, slice->rank, i, at);
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
    rfs_trace_free(slice->trace);
    free(slice->boxes.data);
    free(slice->path);
}

/* A slice that is summed up, and then given to FN. */
struct giving {
    struct sum *sum; /* NULL: no sums */
    rfs_explained_fn *fn;
    void *ctx;
};

static int give_slice(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    const struct giving *giving = ctx;

    if (giving->sum && !sum_add(giving->sum, slice))
        return rfs_fail_memory(err);
    return giving->fn(giving->ctx, slice, err);
}

int rfs_explained_each(struct rfs_explained_view *view, struct rfs_explained_totals *totals,
                       rfs_explained_fn *fn, void *ctx, struct rfs_error *err)
{
    struct sum sum = {.view = view};
    struct giving giving = {totals ? &sum : NULL, fn, ctx};
    struct rfs_trace trace = {.n = 0};
    struct rfs_explained slice = {.trace = &trace};
    int rc = totals && !sum_begin(view, totals, &sum) ? rfs_fail_memory(err) : 0;

    for (size_t i = 0; rc == 0 && i < view->n_selected; i++) {
        slice.rank = view->selected[i];
        slice.position = i;
        rc = explain_rank(view, &slice, give_slice, &giving, err);
    }
    if (rc == 0 && totals && !sum_next(&sum))
        rc = rfs_fail_memory(err);
    sum_end(&sum);
    free_slice(&slice);
    return rc;
}

/* ---- the view -------------------------------------------------------------------------------- */

int rfs_explained_open(reshard_view *opened, struct rfs_explained_view *out, struct rfs_error *err)
{
    static const struct rfs_explained_words ranks = {"rank",  "ranks",     "rank",
                                                     "ranks", "from rank", "from ranks"};
    static const struct rfs_explained_words parts = {"part",  "parts",     "part",
                                                     "parts", "from part", "from parts"};
    static const struct rfs_explained_words files = {"rank",  "ranks",     "file",
                                                     "files", "from file", "from files"};
    struct rfs_view *view = rfs_view_only(opened);

    *out = (struct rfs_explained_view){.view = view};
    if (!view)
        return rfs_fail_usage(err, "-o step=N, or -o epoch=N", "step=all shows several saves");
    const struct rfs_view_contents of = out->of = rfs_view_contents(view);
    if (of.planner && !of.dst && of.n_ranks > 1)
        return rfs_fail_usage(err, "-d, or -o dst_rules=",
                              "without a strategy view=%s divides rows over its files, and ranks "
                              "have no slices",
                              rfs_option_word("view", of.options->shown));
    const struct rfs_chunks *chunks = rfs_catalog_chunks(of.source);
    out->path = rfs_catalog_path(of.catalog);
    out->n_ranks = of.n_ranks;
    out->offsets = of.encrypted ? "offsets are those of the decrypted content"
                   : rfs_files_are_raw(rfs_catalog_files(of.catalog))
                       ? NULL
                       : "items are compressed, and offsets are where they begin";
    out->chunked = rfs_catalog_chunks(of.catalog) != NULL;
    out->by_rules = of.by_rules != NULL;
    out->in_parts = !of.planner;
    out->words = out->in_parts ? &parts : chunks ? &files : &ranks;
    if (out->in_parts)
        return 0;
    out->n_sources =
        chunks ? chunks->n_files : of.source_scale.src_devices * of.source_scale.src_stages;
    atomic_store(&of.notes->telling, RFS_TELL_ONE_SIDED);
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
        rfs_planner_rank(view->of.planner, view->selected[i], &plan, &planned->errors[i]);

    rfs_progress_file(view->progress);
    rfs_progress_tick(view->progress);
    return rc;
}

static int plan_all(struct rfs_explained_view *view, struct rfs_error *err)
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
        rc = rfs_pool_for(view->of.pool, view->n_selected, plan_one, &planned);
    rfs_progress_end(view->progress);
    for (size_t i = 0; rc && i < view->n_selected; i++)
        if (errors[i].code) {
            *err = errors[i];
            return errors[i].code;
        }
    return rc;
}

int rfs_explained_plan(struct rfs_explained_view *view, struct rfs_error *err)
{
    return plan_all(view, err) ?: (view->param ? check_param(view, err) : 0);
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
        if (!add_params(every, list_of(view, i).params, &every->params_of[i]))
            return false;
    if (every->params_of && every->occurrences.n > 1)
        RFS_SORT_ALL(&every->occurrences, by_name);
    return every->params_of && group_by_name(every);
}

/* Gives what all ranks of a parameter list take of one of its parameters. */
static int give_occurrence(struct rfs_explained_view *view, struct sum *sum,
                           const struct every *every, const struct occurrence *of,
                           struct rfs_explained *slice)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < view->n_selected; i++) {
        if (every->params_of[i] != of->params)
            continue;
        const struct rfs_tensors list = list_of(view, i);
        slice->rank = view->selected[i];
        slice->position = i;
        rc = trace_target(view, &list, (uint32_t)(of->target - list.params->targets), slice);
        set_types(view, slice);
        if (rc == 0 && !sum_add(sum, slice))
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
        if (view->of.by_rules ||
            !rfs_trace_is_shared(view->of.planner, first->occurrences[k].target))
            return 1;
    while (i + n < every->names.n && by_kind(first, &first[n]) == 0)
        n++;
    return n;
}

/* Gives what hfai's parts take of all tensors. 0 or -ENOMEM. */
static int give_parts(struct rfs_explained_view *view, struct sum *sum, struct rfs_explained *slice)
{
    const size_t n = view->parts->of.tensors.params->n;
    int rc = 0;

    for (size_t tensor = 0; rc >= 0 && tensor < n; tensor++) {
        for (size_t i = 0; rc >= 0 && i < view->n_selected; i++) {
            slice->rank = view->selected[i];
            slice->position = i;
            rc = slice_part(view, tensor, slice);
            set_types(view, slice);
            if (rc > 0 && !sum_add(sum, slice))
                rc = -ENOMEM;
        }
        if (rc >= 0 && !sum_next(sum))
            rc = -ENOMEM;
    }
    return rc < 0 ? -ENOMEM : 0;
}

/* Gives what all ranks take of their parameters. */
static int give_params(struct rfs_explained_view *view, struct sum *sum,
                       struct rfs_explained *slice)
{
    struct every every = {0};
    int rc = list_all(&every, view) ? 0 : -ENOMEM;

    rfs_progress_begin(view->progress, "counting", 0, every.occurrences.n);
    for (size_t i = 0, times; rc == 0 && i < every.names.n; i += times) {
        const struct named *named = &every.names.data[i];
        sum->times = times = alike(view, &every, i);
        for (size_t k = 0; rc == 0 && k < named->n; k++)
            rc = give_occurrence(view, sum, &every, &named->occurrences[k], slice);
        if (rc == 0 && !sum_next(sum))
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

int rfs_explained_all(struct rfs_explained_view *view, struct rfs_explained_totals *totals,
                      struct rfs_error *err)
{
    struct sum sum;
    struct rfs_trace trace = {.n = 0};
    struct rfs_explained slice = {.trace = &trace};
    int rc = sum_begin(view, totals, &sum) ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < view->n_selected; i++)
        totals->ranks[i].files = view->parts ? view->n_sources : list_of(view, i).plan->n_sources;
    if (rc == 0)
        rc = view->parts ? give_parts(view, &sum, &slice) : give_params(view, &sum, &slice);
    sum_end(&sum);
    free_slice(&slice);
    if (rc == -ENOMEM)
        return rfs_fail_memory(err);
    return rc ? rfs_fail(err, rc, RFS_IN(view->path), NULL, "a parameter cannot be traced: %s",
                         strerror(-rc))
              : 0;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Sets where the elements of a piece are that a link of rules gives. */
static void set_link(const struct rfs_rules_map *map, const struct rfs_piece_trace *piece,
                     struct rfs_explained_piece *out)
{
    const struct rfs_rules_link *link = piece->link;
    const struct rfs_rules_digit *digits = map->digits.data + link->digits;

    for (int side = RFS_EXPLAINED_MADE; side <= RFS_EXPLAINED_SOURCE; side++)
        for (uint32_t a = 0; a < out->side[side].ndim; a++)
            out->side[side].begin[a] = map->ats.data[link->at[side] + a];
    for (uint32_t k = 0; k < link->n; k++) {
        const struct rfs_rules_digit *digit = &digits[k];
        const uint64_t first = piece->span.first[k];
        const uint64_t count = piece->span.end[k] - first;
        for (int side = RFS_EXPLAINED_MADE; side <= RFS_EXPLAINED_SOURCE; side++) {
            out->side[side].begin[digit->axis[side]] += first * digit->step[side];
            out->steps[out->n].axis[side] = digit->axis[side];
            out->steps[out->n].step[side] = digit->step[side];
        }
        out->steps[out->n].count = count;
        out->n += count > 1;
    }
}

_Static_assert(RFS_EXPLAINED_STEPS >= RFS_RULES_DIGITS, "each digit may be a step");
_Static_assert((int)RFS_EXPLAINED_SOURCE == (int)RFS_SOURCE, "sides have the order of links");

void rfs_explained_piece(const struct rfs_explained_view *view, const struct rfs_explained *slice,
                         size_t i, struct rfs_explained_piece *out)
{
    const struct rfs_piece_trace *piece = &slice->trace->pieces[i];
    const struct rfs_by_rules *by_rules = view->of.by_rules;
    const struct rfs_target *source =
        piece->link ? rfs_by_rules_target(by_rules, piece->link->source) : slice->target;
    const struct rfs_type *made = piece->link ? &slice->by->type : slice->type;
    const struct rfs_type *type = piece->link ? rfs_catalog_type(view->of.catalog, source->type)
                                              : rfs_catalog_type(view->of.catalog, piece->type);

    *out = (struct rfs_explained_piece){
        .rank = piece->rank,
        .first = piece->first,
        .path = path_of(view, piece->block.file),
        .name = rfs_catalog_name(view->of.catalog, source->name),
        .bytes = rfs_explained_block_bytes(&piece->block),
        .plus = piece->block.content.plus,
        .zeros = piece->block.content.zeros,
        .side = {[RFS_EXPLAINED_MADE] = {made->ndim, piece->link ? made->dims : slice->whole, {0}},
                 [RFS_EXPLAINED_SOURCE] = {type->ndim, type->dims, {0}}}};
    if (piece->link) {
        set_link(by_rules->map, piece, out);
        return;
    }
    out->whole = &piece->whole;
    out->source = &piece->source;
    out->target = &piece->target;
    memcpy(out->side[RFS_EXPLAINED_MADE].begin, piece->whole.at, sizeof piece->whole.at);
    memcpy(out->side[RFS_EXPLAINED_SOURCE].begin, piece->source.at, sizeof piece->source.at);
}

uint32_t *rfs_explained_holders(const struct rfs_explained_view *view,
                                const struct rfs_explained *slice, size_t i,
                                enum rfs_explained_holding holding, size_t *n)
{
    static const enum rfs_holding of[] = {[RFS_EXPLAINED_SAME] = RFS_HOLDS,
                                          [RFS_EXPLAINED_LEFT_OUT] = RFS_HOLDS_BARE,
                                          [RFS_EXPLAINED_LOST] = RFS_HOLDS_LOST};
    const struct rfs_trace *trace = slice->trace;
    const struct rfs_piece_trace *piece = &trace->pieces[i];
    uint32_t *ranks = calloc((size_t)trace->devices + 1, sizeof *ranks);

    *n = 0;
    for (uint32_t rank = trace->base; ranks && rank < trace->base + trace->devices; rank++)
        if (rank != piece->rank &&
            rfs_trace_holding(view->of.planner, slice->target, trace, piece, rank) == of[holding])
            ranks[(*n)++] = rank;
    return ranks;
}
