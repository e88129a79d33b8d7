/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/explain/parts.h"

#include "base/cleanup.h"
#include "hfai/hfai.h"

struct rfs_explain_parts {
    struct rfs_hfai_list list;
    uint32_t *held; /* [tensors] owned; as rfs_hfai_hold has them */
    uint32_t n_sources, n_shown;
    uint32_t *part_of; /* [files] owned; by id in the catalogue's files */

    /* Of the tensor that was sliced last. */
    size_t tensor;            /* SIZE_MAX: none yet */
    struct rfs_target target; /* of its slice */
    struct rfs_slice whole;
    struct rfs_geometry geometry;
    uint64_t *src_edge, *dst_edge; /* [parts + 1] owned; elements */
    uint32_t source;               /* the part that has all of it; RFS_HFAI_PIECES: all have some */
    char sides[2][64];
};

static uint32_t add_type(struct rfs_explain *explain, const struct rfs_type *type)
{
    return rfs_intern_add(rfs_catalog_tables(explain->plans.catalog)->types, type, sizeof *type);
}

static bool number_files(struct rfs_explain_parts *parts, struct rfs_catalog *catalog)
{
    uint32_t last = 0;

    for (uint32_t p = 0; p < parts->n_sources; p++)
        if (rfs_catalog_file(catalog, p) > last)
            last = rfs_catalog_file(catalog, p);
    parts->part_of = calloc((size_t)last + 1, sizeof *parts->part_of);
    for (uint32_t p = 0; parts->part_of && p < parts->n_sources; p++)
        parts->part_of[rfs_catalog_file(catalog, p)] = p;
    return parts->part_of != NULL;
}

int rfs_explain_parts_open(struct rfs_explain *explain, struct rfs_error *err)
{
    struct rfs_explain_parts *parts = explain->parts = calloc(1, sizeof *parts);

    if (!parts)
        return rfs_fail_memory(err);
    parts->tensor = SIZE_MAX;
    parts->n_sources = rfs_hfai_parts(explain->plans.hfai);
    parts->n_shown = explain->plans.n_ranks;
    int rc = rfs_hfai_list(explain->plans.hfai, &parts->list, err);
    if (rc)
        return rc;
    parts->held = calloc(parts->list.tensors.n + 1, sizeof *parts->held);
    parts->src_edge = calloc((size_t)parts->n_sources + 1, sizeof *parts->src_edge);
    parts->dst_edge = calloc((size_t)parts->n_shown + 1, sizeof *parts->dst_edge);
    if (!parts->held || !parts->src_edge || !parts->dst_edge ||
        !number_files(parts, explain->plans.catalog))
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
    free(parts->src_edge);
    free(parts->dst_edge);
    free(parts);
}

size_t rfs_explain_parts_tensors(const struct rfs_explain_parts *parts)
{
    return parts->list.tensors.n;
}

size_t rfs_explain_parts_find(const struct rfs_explain_parts *parts, const char *name)
{
    for (size_t i = 0; i < parts->list.tensors.n; i++)
        if (strcmp(parts->list.tensors.data[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

uint32_t rfs_explain_parts_held(const struct rfs_explain_parts *parts, size_t tensor)
{
    return parts->held[tensor];
}

bool rfs_explain_parts_has(const struct rfs_explain_parts *parts, size_t tensor, uint32_t part)
{
    return parts->held[tensor] >= RFS_HFAI_EVERY || parts->held[tensor] == part;
}

/* ---- a tensor -------------------------------------------------------------------------------- */

/* A row that is cut at EDGE into N pieces, one for each part; EDGE NULL: one part has it whole. */
static void set_grid(struct rfs_grid *grid, uint32_t n, const uint64_t *edge)
{
    rfs_grid_single(1, grid);
    if (!edge)
        return;
    grid->ranks = grid->pieces[0] = n;
    grid->edge = edge;
    grid->n_digits = 1;
    grid->digits[0] = (struct rfs_digit){.stride = 1, .extent = n, .axis = 0, .weight = 1};
}

/* Where the pieces of the source end; an empty one has no block. */
static void set_source_edges(struct rfs_explain_parts *parts, uint64_t item)
{
    uint64_t *edge = parts->src_edge;

    memset(edge, 0, ((size_t)parts->n_sources + 1) * sizeof *edge);
    for (size_t i = 0; i < parts->whole.n; i++)
        edge[parts->part_of[parts->whole.blocks[i].file] + 1] =
            parts->whole.blocks[i].dst_end / item;
    for (uint32_t p = 0; p < parts->n_sources; p++)
        if (edge[p + 1] < edge[p])
            edge[p + 1] = edge[p];
}

static void set_geometry(struct rfs_explain_parts *parts, const struct rfs_hfai_listed *tensor,
                         bool is_cut)
{
    struct rfs_geometry *geometry = &parts->geometry;
    const uint32_t item = rfs_dtype_bytes((enum rfs_dtype)tensor->type.dtype);
    uint64_t elements = 1;
    uint64_t begin;

    for (uint32_t i = 0; i < tensor->type.ndim; i++)
        elements *= tensor->type.dims[i];
    set_source_edges(parts, item);
    for (uint32_t p = 0; p < parts->n_shown; p++)
        rfs_hfai_chunk(elements, parts->n_shown, p, &begin, &parts->dst_edge[p + 1]);
    *geometry = (struct rfs_geometry){.ndim = 1, .item = item, .whole = {elements}};
    set_grid(&geometry->src, parts->n_sources, tensor->in_pieces ? parts->src_edge : NULL);
    set_grid(&geometry->dst, parts->n_shown, is_cut ? parts->dst_edge : NULL);
}

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
    const int rc = rfs_storages_slice(&parts->list.storages, (uint32_t)number, &parts->whole);
    if (rc)
        return rc;
    parts->source = tensor->in_pieces    ? RFS_HFAI_PIECES
                    : parts->whole.n > 0 ? parts->part_of[parts->whole.blocks[0].file]
                                         : 0;
    set_geometry(parts, tensor, parts->held[number] == RFS_HFAI_PIECES);
    say_side(parts->sides[0], parts->source, parts->n_sources);
    if (!tensor->in_pieces && parts->whole.n == 0)
        snprintf(parts->sides[0], sizeof parts->sides[0], "whole");
    say_side(parts->sides[1], parts->held[number], parts->n_shown);
    parts->target = (struct rfs_target){
        .name = rfs_intern_add(rfs_catalog_tables(explain->plans.catalog)->names, tensor->name,
                               strlen(tensor->name)),
        .shown_type = add_type(explain, &tensor->type)};
    parts->target.shown_name = parts->target.name;
    parts->tensor = number;
    return parts->target.name == RFS_NO_ID || parts->target.shown_type == RFS_NO_ID ? -ENOMEM : 0;
}

/* ---- its slice in a part --------------------------------------------------------------------- */

static bool push(struct rfs_trace *trace, const struct rfs_piece_trace *piece)
{
    struct rfs_piece_trace *added = rfs_trace_add(trace);

    if (added)
        *added = *piece;
    return added;
}

/* All of it, from one file. */
static bool copy(struct rfs_explain_parts *parts, const struct rfs_hfai_listed *tensor,
                 struct rfs_trace *trace)
{
    const struct rfs_storage_item *item = &parts->list.storages.items.data[parts->tensor];
    struct rfs_piece_trace piece = {
        .rank = parts->source, .first = parts->source, .type = parts->target.shown_type};

    if (parts->whole.n == 0)
        return true;
    memcpy(piece.whole.len, tensor->type.dims, sizeof piece.whole.len);
    piece.source = piece.target = piece.whole;
    piece.block = parts->whole.blocks[0];
    for (uint32_t i = 0; item->strided > 0 && i < tensor->type.ndim; i++)
        if (parts->list.storages.strided.data[item->strided - 1].stride[i] == 0)
            piece.repeated |= 1U << i;
    return push(trace, &piece);
}

/* The row of a piece. */
static struct rfs_type row_type(const struct rfs_explain_parts *parts,
                                const struct rfs_hfai_listed *tensor, uint64_t begin, uint64_t end)
{
    struct rfs_type type = {.bytes = (end - begin) * parts->geometry.item,
                            .ndim = 1,
                            .dtype = tensor->type.dtype,
                            .kind = RFS_TENSOR};

    type.dims[0] = end - begin;
    return type;
}

/* The elements of [begin, end) that one block of the whole gives. */
static bool add_block(struct rfs_explain *explain, const struct rfs_hfai_listed *tensor,
                      const struct rfs_block *block, uint64_t begin, uint64_t end,
                      struct rfs_trace *trace)
{
    struct rfs_explain_parts *parts = explain->parts;
    const uint64_t item = parts->geometry.item;
    const uint64_t first = block->dst / item;
    const uint64_t last = block->dst_end / item;
    const uint64_t lo = begin > first ? begin : first;
    const uint64_t hi = end < last ? end : last;
    const uint32_t part = parts->part_of[block->file];
    const struct rfs_type type = row_type(parts, tensor, first, last);
    const uint64_t len = hi - lo;
    struct rfs_piece_trace piece = {.rank = part,
                                    .first = part,
                                    .whole = {{lo}, {len}},
                                    .source = {{lo - first}, {len}},
                                    .target = {{lo - begin}, {len}},
                                    .type = add_type(explain, &type),
                                    .block = *block};

    piece.block.dst = (lo - begin) * item;
    piece.block.src += (lo - first) * item;
    piece.block.run = len * item;
    piece.block.dst_end = (hi - begin) * item;
    return piece.type != RFS_NO_ID && push(trace, &piece);
}

static bool cut(struct rfs_explain *explain, const struct rfs_hfai_listed *tensor, uint64_t begin,
                uint64_t end, struct rfs_trace *trace)
{
    const struct rfs_slice *whole = &explain->parts->whole;
    const uint64_t item = explain->parts->geometry.item;
    size_t i = 0;

    for (size_t high = whole->n; i < high;) { /* the first that ends behind BEGIN */
        const size_t middle = i + (high - i) / 2;
        if (whole->blocks[middle].dst_end > begin * item)
            high = middle;
        else
            i = middle + 1;
    }
    for (; i < whole->n && whole->blocks[i].dst < end * item; i++)
        if (!add_block(explain, tensor, &whole->blocks[i], begin, end, trace))
            return false;
    return true;
}

int rfs_explain_parts_slice(struct rfs_explain *explain, size_t number, struct rfs_explained *slice)
{
    struct rfs_explain_parts *parts = explain->parts;
    const struct rfs_hfai_listed *tensor = &parts->list.tensors.data[number];
    const bool in_pieces = parts->held[number] == RFS_HFAI_PIECES;
    struct rfs_trace *trace = &slice->trace;

    if (!rfs_explain_parts_has(parts, number, slice->rank))
        return 0;
    const int rc = begin_tensor(explain, number);
    if (rc)
        return rc;
    const bool copied = !in_pieces && !tensor->in_pieces;
    *trace = (struct rfs_trace){.geometry = copied ? NULL : &parts->geometry,
                                .base = tensor->in_pieces ? 0 : parts->source,
                                .cap = trace->cap,
                                .pieces = trace->pieces};
    slice->target = &parts->target;
    slice->n_dims = tensor->type.ndim;
    slice->dims = tensor->type.dims;
    slice->source = (struct rfs_explained_side){.words = parts->sides[0]};
    slice->destination = (struct rfs_explained_side){.words = parts->sides[1]};
    if (copied) {
        parts->target.type = parts->target.shown_type;
        return copy(parts, tensor, trace) ? 1 : -ENOMEM;
    }
    const uint64_t begin = in_pieces ? parts->dst_edge[slice->rank] : 0;
    const uint64_t end = in_pieces ? parts->dst_edge[slice->rank + 1] : parts->geometry.whole[0];
    const struct rfs_type row = row_type(parts, tensor, begin, end);
    parts->target.type = add_type(explain, &row);
    if (in_pieces)
        parts->target.shown_type = parts->target.type;
    return parts->target.type != RFS_NO_ID && cut(explain, tensor, begin, end, trace) ? 1 : -ENOMEM;
}
