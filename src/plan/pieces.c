/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/pieces.h"

#include "base/checked.h"
#include "formats/chunks/boxes.h"
#include "plan/by_rules.h"
#include "plan/internal.h"

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Returns the chunks that slices are made of, or NULL. */
static struct rfs_chunks *find_chunks(const struct rfs_planner *planner)
{
    return planner->config.by_rules ? NULL : rfs_catalog_chunks(planner->config.catalog);
}

const struct rfs_chunked_tensor *rfs_plan_chunked_tensor(const struct rfs_planner *planner,
                                                         const struct rfs_target *target)
{
    struct rfs_catalog *catalog = planner->config.catalog;
    size_t length;
    const char *name =
        (const char *)rfs_intern_bytes(rfs_catalog_tables(catalog)->names, target->name, &length);

    return rfs_chunks_find(rfs_catalog_chunks(catalog), name, length);
}

/*
 * Finds further copy COPY of a chunk, from 0 on: 1 when it is one, 0 with *err filled (the file
 * cannot be read) or not (*out says that it has something else there), or -errno.
 */
static int find_copy(struct rfs_chunks *chunks, uint32_t chunk, uint32_t copy,
                     struct rfs_chunked_copy *out, struct rfs_error *err)
{
    const int rc = rfs_chunks_locate_copy(chunks, chunk, copy, out, err);

    if (rc == -EINTR || rc == -ENOMEM)
        return rc;
    return rc == 0 && out->type == chunks->chunks.data[chunk].type;
}

/* ---- where the source has a tensor ----------------------------------------------------------- */

/* A walk over the places of one target of a planner of files. */
struct sources {
    struct rfs_planner *planner;
    const struct rfs_target *target;
    const struct rfs_geometry *geometry; /* NULL: the target is copied */
    struct rfs_provider_query query;
    uint32_t copy;
    bool unlocated; /* places are chunks by their numbers alone */
    rfs_piece_source_fn *each;
    void *ctx;
};

static struct sources begin(struct rfs_planner *planner, uint32_t local,
                            const struct rfs_target *target, uint32_t copy)
{
    return (struct sources){.planner = planner,
                            .target = target,
                            .geometry = rfs_planner_geometry(planner, target),
                            .query = rfs_plan_query_of(planner, local, target),
                            .copy = copy};
}

/*
 * Returns the rank that gives copy COPY of a piece, from 1 on: the ranks that hold it, ascending,
 * without its provider.
 */
static uint32_t other_holder(const struct rfs_geometry *geometry, uint32_t provider, uint32_t copy)
{
    const uint32_t at = geometry ? rfs_grid_replica(&geometry->src, provider, copy - 1) : copy - 1;

    if (at < provider)
        return at;
    return geometry ? rfs_grid_replica(&geometry->src, provider, copy) : copy;
}

/*
 * Returns the index of a global rank of source STAGE, or NULL when it has none that can be read.
 * Within a use of the catalogue.
 */
static const struct rfs_index *index_of_rank(struct rfs_planner *planner, uint32_t rank,
                                             uint32_t stage)
{
    struct rfs_catalog *catalog = planner->config.catalog;
    const struct rfs_index *index;

    if (rank >= rfs_catalog_ranks(catalog) || !rfs_catalog_has(catalog, rank) ||
        (planner->config.lost == RFS_LOST_LEFT_OUT &&
         rfs_lacking_file(planner->config.lacking, rank)) ||
        rfs_catalog_index(catalog, rank, atomic_load(&planner->stages[stage].lead), &index, NULL))
        return NULL;
    return index;
}

static const struct rfs_entry *entry_of(const struct sources *walk, uint32_t rank)
{
    const struct rfs_index *index = index_of_rank(walk->planner, rank, walk->target->stage);

    return index ? rfs_index_find(index, walk->target->name) : NULL;
}

/* Returns the global rank that gives a piece of this copy: the provider, if no other has it. */
static uint32_t pick(const struct sources *walk, uint32_t provider, struct rfs_piece_source *source)
{
    if (walk->copy == 0 || provider == RFS_NO_RANK)
        return provider;
    const uint32_t base = walk->query.base;
    const uint32_t other = base + other_holder(walk->geometry, provider - base, walk->copy);
    const struct rfs_entry *entry = entry_of(walk, other);
    if (!entry)
        return provider;
    const struct rfs_entry *given = entry_of(walk, provider);
    if (given && given->type != entry->type) {
        source->odd = other;
        return provider;
    }
    const struct rfs_catalog *catalog = walk->planner->config.catalog;
    if (rfs_catalog_file(catalog, other) == rfs_catalog_file(catalog, provider))
        return provider; /* its file stands in for the other rank's */
    source->other = true;
    return other;
}

/*
 * Finds the parameter in the file of a global rank, which may be RFS_NO_RANK, of source STAGE.
 * Within a use of the catalogue. 0, -EIO when it is not there, or an error of indexing.
 */
static int find_entry(const struct rfs_provider_query *query, uint32_t stage, uint32_t rank,
                      const struct rfs_index **index, const struct rfs_entry **entry)
{
    const struct rfs_planner *planner = query->planner;

    if (rank == RFS_NO_RANK)
        return -EIO;
    const int rc = rfs_catalog_index(planner->config.catalog, rank,
                                     atomic_load(&planner->stages[stage].lead), index, NULL);
    *entry = rc ? NULL : rfs_index_find(*index, query->name);
    return rc || *entry ? rc : -EIO;
}

/*
 * Sets the file of what is asked for, and *strides to those of the rank's slice, or NULL: they last
 * as long as the use of indexes.
 */
static int locate(const struct sources *walk, struct rfs_piece_source *source,
                  const uint64_t **strides)
{
    struct rfs_catalog *catalog = walk->planner->config.catalog;
    const struct rfs_index *index;
    const struct rfs_entry *entry;

    source->chunk = RFS_NO_ID;
    source->other = false;
    source->odd = RFS_NO_RANK;
    source->rank = pick(walk, rfs_plan_provider(&walk->query, &source->asked), source);
    const int rc = find_entry(&walk->query, walk->target->stage, source->rank, &index, &entry);
    if (rc)
        return rc;
    source->type = entry->type;
    source->file = rfs_catalog_entry_file(catalog, source->rank, index, entry);
    *strides = rfs_index_strides(index, entry);
    return rfs_catalog_content(catalog, index, entry, &source->content);
}

/* Returns what is copied of a parameter that is not cut, in source STAGE. */
static struct rfs_plan_piece copied_piece(const struct rfs_provider_query *query, uint32_t stage)
{
    const struct rfs_role_rules rules = rfs_plan_rules(query->planner);
    const struct rfs_role_name name = rfs_plan_name(query->planner, query->name);

    return rfs_plan_piece_slice(rfs_role_source_layout(&rules, &name, stage), query->template);
}

static int walk_copied(const struct sources *walk)
{
    const struct rfs_type *type =
        rfs_catalog_type(walk->planner->config.catalog, walk->target->type);
    uint64_t step = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    struct rfs_piece_source source;
    const uint64_t *strides;

    source.asked = copied_piece(&walk->query, walk->target->stage);
    const int rc = locate(walk, &source, &strides);
    if (rc)
        return rc;
    source.box = (struct rfs_geometry_stored){.strided = strides != NULL};
    for (uint32_t i = type->ndim; i-- > 0; step *= type->dims[i]) {
        source.box.size[i] = type->dims[i];
        source.box.stride[i] = strides ? strides[i] : step;
    }
    return walk->each(walk->ctx, &source);
}

/* Walks through the source cells that the box of CELLS touches. */
static int walk_cut(const struct sources *walk, struct rfs_cells *cells)
{
    uint32_t cell[RFS_MAX_DIMS] = {0};
    struct rfs_piece_source source;
    const uint64_t *strides;
    int rc;

    rfs_geometry_cells_in(walk->geometry, cells, cell);
    do {
        source.asked = rfs_plan_piece_cell(walk->geometry, cell);
        rc = locate(walk, &source, &strides);
        if (rc)
            return rc;
        rfs_geometry_cell(walk->geometry, cell, strides, &source.box);
        rc = walk->each(walk->ctx, &source);
    } while (rc == 0 && rfs_geometry_cells_next(walk->geometry, cells, cell));
    return rc;
}

/* Sets where a chunk's part is: in the chunk's own file, or in its copy if that can be used. */
static int locate_chunk(const struct sources *walk, const struct rfs_chunk_box *part,
                        struct rfs_piece_source *source)
{
    struct rfs_chunks *chunks = find_chunks(walk->planner);
    struct rfs_chunked_copy copy;
    struct rfs_chunk_place place;
    struct rfs_error err = {0};

    const int rc = rfs_chunks_locate_box(chunks, part, &place, &err);
    if (rc && err.text[0])
        rfs_notes_add(walk->planner, RFS_NOTE_FAILURE, RFS_ERROR, "%s", err.text);
    if (rc)
        return rc;
    source->rank = rfs_chunks_file_of(chunks, part->chunk) - chunks->first_file;
    source->other = false;
    if (walk->copy > 0 && walk->copy <= rfs_chunks_count_copies(chunks, part->chunk)) {
        const int there = find_copy(chunks, part->chunk, walk->copy - 1, &copy, NULL);
        if (there < 0)
            return there;
        if (there == 1) {
            rfs_chunks_place_box(chunks, part, copy.file, copy.at, &place);
            source->other = true;
        }
    }
    source->type = chunks->chunks.data[part->chunk].type;
    source->file = place.file;
    source->content = (struct rfs_content){.offset = place.at};
    memcpy(source->box.at, part->at, sizeof source->box.at);
    memcpy(source->box.size, part->size, sizeof source->box.size);
    memcpy(source->box.stride, place.stride, sizeof source->box.stride);
    source->box.begin = 0;
    source->box.begin_axis = 0;
    source->box.strided = place.strided;
    return 0;
}

static int walk_chunks(const struct sources *walk, const struct rfs_cells *cells)
{
    const struct rfs_chunked_tensor *tensor = rfs_plan_chunked_tensor(walk->planner, walk->target);
    struct rfs_piece_source source;
    struct rfs_chunks_walk inner;
    struct rfs_chunk_box part;
    int rc = 0;

    if (!tensor || tensor->incomplete)
        return -EIO;
    source.odd = RFS_NO_RANK;
    rfs_chunks_walk_begin(rfs_catalog_chunks(walk->planner->config.catalog), tensor, cells->lo,
                          cells->hi, &inner);
    while (rc == 0 && rfs_chunks_walk_next(&inner, &part)) {
        source.chunk = part.chunk;
        rc = (walk->unlocated ? 0 : locate_chunk(walk, &part, &source))
                 ?: walk->each(walk->ctx, &source);
    }
    return rc;
}

/*
 * Calls EACH for the places that the box of CELLS touches; they may reach beyond it. Within a use
 * of the catalogue.
 */
static int walk_sources(const struct sources *walk, struct rfs_cells *cells)
{
    if (rfs_catalog_chunks(walk->planner->config.catalog))
        return walk_chunks(walk, cells);
    return walk->geometry ? walk_cut(walk, cells) : walk_copied(walk);
}

/* ---- the boxes of a target ------------------------------------------------------------------- */

/* A target whose pieces are found. */
struct pieces {
    struct sources sources;
    const struct rfs_plan_part *part;    /* the part that is wanted; NULL: all of the target */
    const struct rfs_geometry *geometry; /* of the target; OWN, if it is not cut, or of a part */
    struct rfs_geometry own;
    uint32_t local;         /* the destination rank, as the geometry counts them */
    struct rfs_cells cells; /* the present box */
    rfs_piece_fn *each;
    void *ctx;
};

/* Narrows the present box to the wanted part. False when they have nothing in common. */
static bool narrow(struct pieces *pieces)
{
    const struct rfs_plan_part *part = pieces->part;
    struct rfs_cells *cells = &pieces->cells;

    for (uint32_t i = 0; part && i < pieces->geometry->ndim; i++) {
        const uint64_t at =
            i == cells->begin_axis ? cells->begin : 0; /* where the box begins in the slice */
        const uint64_t from = rfs_max_u64(part->lo[i], at);
        const uint64_t to = rfs_min_u64(part->hi[i], at + cells->hi[i] - cells->lo[i]);
        if (from >= to)
            return false;
        cells->hi[i] = cells->lo[i] + (to - at);
        cells->lo[i] += from - at;
        if (i == cells->begin_axis)
            cells->begin = from - part->lo[i];
    }
    return true;
}

/* Calls BOX for each box of the target. */
static int each_box(struct pieces *pieces, int (*box)(struct pieces *pieces))
{
    const struct rfs_geometry *geometry = pieces->geometry;
    int rc = 0;

    for (uint32_t round = 0; rc == 0 && round < geometry->dst.rounds; round++) {
        rfs_geometry_box(geometry, pieces->local, round, &pieces->cells);
        rc = narrow(pieces) ? box(pieces) : 0;
    }
    return rc;
}

/* Makes the bytes of the wanted part follow each other. */
static void shrink_geometry(struct pieces *pieces)
{
    if (pieces->geometry != &pieces->own)
        pieces->own = *pieces->geometry;
    pieces->geometry = &pieces->own;
    for (uint32_t i = 0; i < pieces->own.ndim; i++)
        pieces->own.dst_dims[i] = pieces->part->hi[i] - pieces->part->lo[i];
}

/*
 * Sets the geometry of a target of a local rank; the target is of TYPE in the source if it is not
 * cut.
 */
static int set_geometry(struct pieces *pieces, struct rfs_planner *planner, uint32_t local,
                        const struct rfs_target *target, const struct rfs_type *type)
{
    int rc = 0;

    pieces->geometry = rfs_planner_geometry(planner, target);
    pieces->local = pieces->geometry ? local : 0;
    if (!pieces->geometry) {
        pieces->geometry = &pieces->own;
        rc = rfs_geometry_resolve(type, NULL, NULL, NULL, NULL,
                                  rfs_catalog_name(planner->config.catalog, target->name),
                                  &pieces->own, NULL);
    }
    if (rc == 0 && pieces->part)
        shrink_geometry(pieces);
    return rc;
}

/* ---- pieces of tensors as they are ----------------------------------------------------------- */

/* Makes the piece that the present box takes from a place. */
static int add_direct(void *ctx, const struct rfs_piece_source *source)
{
    struct pieces *pieces = ctx;
    struct rfs_piece piece = {.source = source,
                              .cells = &pieces->cells,
                              .block = {.file = source->file, .content = source->content}};

    rfs_geometry_block(pieces->geometry, &pieces->cells, &source->box, &piece.block);
    return pieces->each(pieces->ctx, &piece);
}

/* Makes the piece of a value that is copied whole, whatever its kind. */
static int add_copied(void *ctx, const struct rfs_piece_source *source)
{
    const struct pieces *pieces = ctx;
    const struct sources *walk = &pieces->sources;
    struct rfs_piece piece = {.source = source,
                              .block = {.file = source->file, .content = source->content}};

    const struct rfs_type *type =
        rfs_catalog_type(walk->planner->config.catalog, walk->target->type);
    const uint64_t *strides = source->box.strided ? source->box.stride : NULL;

    if (pieces->part)
        rfs_slice_block_part(&piece.block, type, strides, pieces->part->lo, pieces->part->hi);
    else
        rfs_slice_block_whole(&piece.block, type, strides);
    return pieces->each(pieces->ctx, &piece);
}

static int take_box(struct pieces *pieces)
{
    return walk_sources(&pieces->sources, &pieces->cells);
}

static int walk_direct(struct pieces *pieces, uint32_t local)
{
    struct sources *walk = &pieces->sources;
    struct rfs_catalog *catalog = walk->planner->config.catalog;
    const bool copied = !walk->geometry && !rfs_catalog_chunks(catalog);

    walk->each = copied ? add_copied : add_direct;
    walk->ctx = pieces;
    if (copied)
        return walk_copied(walk);
    return set_geometry(pieces, walk->planner, local, walk->target,
                        rfs_catalog_type(catalog, walk->target->type))
               ?: each_box(pieces, take_box);
}

/* ---- pieces of what rules make --------------------------------------------------------------- */

/* A tensor that rules make. */
struct linked {
    struct pieces pieces;
    const struct rfs_by_rules *by_rules;
    const struct rfs_rules_map *map;
    const struct rfs_rules_made *made;
    uint64_t stride[RFS_MAX_DIMS];     /* in the slice, in bytes */
    const struct rfs_rules_link *link; /* the present one */
    const struct rfs_rules_span *span; /* its digits that lie in the present box */
    uint32_t source_ndim;
    struct rfs_rules_spans spans; /* digits that lie in a place of the source, too */
};

/* Says whether the runs of a block ascend in the source, one behind the other. */
static bool is_nested(const struct rfs_block *block)
{
    uint64_t extent = block->run;

    for (uint32_t i = block->n_loops; i-- > 0;) {
        if (block->loop[i].src_stride < extent)
            return false;
        extent += (block->loop[i].count - 1) * block->loop[i].src_stride;
    }
    return true;
}

/* Makes the piece of a range of the link's digits that one place of the source has. */
static int add_span(struct linked *linked, const struct rfs_piece_source *source,
                    const struct rfs_rules_span *span)
{
    const struct rfs_rules_map *map = linked->map;
    const struct rfs_rules_link *link = linked->link;
    const struct rfs_geometry_stored *box = &source->box;
    const struct rfs_cells *cells = &linked->pieces.cells;
    uint64_t dst[RFS_MAX_DIMS] = {0}; /* of the first element, along each axis */
    uint64_t src[RFS_MAX_DIMS] = {0};
    uint64_t len[RFS_RULES_DIGITS];
    uint64_t dst_stride[RFS_RULES_DIGITS];
    uint64_t src_stride[RFS_RULES_DIGITS];
    struct rfs_piece piece = {.source = source,
                              .cells = cells,
                              .link = link,
                              .span = span,
                              .block = {.file = source->file, .content = source->content}};

    for (uint32_t a = 0; a < linked->made->type.ndim; a++)
        dst[a] = map->ats.data[link->at[RFS_MADE] + a];
    for (uint32_t a = 0; a < linked->source_ndim; a++)
        src[a] = map->ats.data[link->at[RFS_SOURCE] + a];
    for (uint32_t k = 0; k < link->n; k++) {
        const struct rfs_rules_digit *digit = &map->digits.data[link->digits + k];
        len[k] = span->end[k] - span->first[k];
        dst[digit->axis[RFS_MADE]] += span->first[k] * digit->step[RFS_MADE];
        src[digit->axis[RFS_SOURCE]] += span->first[k] * digit->step[RFS_SOURCE];
        dst_stride[k] = digit->step[RFS_MADE] * linked->stride[digit->axis[RFS_MADE]];
        src_stride[k] = digit->step[RFS_SOURCE] * box->stride[digit->axis[RFS_SOURCE]];
    }
    for (uint32_t a = 0; a < linked->made->type.ndim; a++)
        piece.block.dst += (dst[a] - cells->lo[a] + (a == cells->begin_axis ? cells->begin : 0)) *
                           linked->stride[a];
    for (uint32_t a = 0; a < linked->source_ndim && !link->zeros; a++)
        piece.block.src +=
            (src[a] - box->at[a] + (a == box->begin_axis ? box->begin : 0)) * box->stride[a];
    rfs_slice_block_box(&piece.block, link->n, len, linked->pieces.geometry->item, dst_stride,
                        link->zeros ? dst_stride : src_stride);
    piece.block.strided = !is_nested(&piece.block);
    if (link->zeros)
        piece.block.content = (struct rfs_content){.offset = source->content.offset, .zeros = true};
    piece.block.content.plus = link->plus;
    piece.block.content.dtype = linked->made->type.dtype;
    return linked->pieces.each(linked->pieces.ctx, &piece);
}

/* Takes the part of the present digits that a place of the source has. */
static int add_linked(void *ctx, const struct rfs_piece_source *source)
{
    struct linked *linked = ctx;
    const struct rfs_geometry_stored *box = &source->box;
    uint64_t hi[RFS_MAX_DIMS];

    if (linked->link->zeros) /* of one element of the source, whatever the span */
        return add_span(linked, source, linked->span);
    for (uint32_t a = 0; a < linked->source_ndim; a++)
        hi[a] = box->at[a] + box->size[a];
    linked->spans.n = 0;
    int rc = rfs_rules_spans_in(linked->map, linked->link, RFS_SOURCE, linked->source_ndim, box->at,
                                hi, linked->span, &linked->spans);
    for (size_t i = 0; rc == 0 && i < linked->spans.n; i++)
        rc = add_span(linked, source, &linked->spans.data[i]);
    return rc;
}

/* Says whether the elements that a link gives reach into the present box. */
static bool touches(const struct linked *linked)
{
    const struct rfs_cells *cells = &linked->pieces.cells;
    const uint32_t ndim = linked->made->type.ndim;
    struct rfs_rules_span all;
    uint64_t lo[RFS_MAX_DIMS];
    uint64_t hi[RFS_MAX_DIMS];

    rfs_rules_span_all(linked->map, linked->link, &all);
    rfs_rules_span_box(linked->map, linked->link, RFS_MADE, ndim, &all, lo, hi);
    for (uint32_t a = 0; a < ndim; a++)
        if (hi[a] <= cells->lo[a] || lo[a] >= cells->hi[a])
            return false;
    return true;
}

/* Takes the part of the present box that the present link gives. */
static int take_link(struct linked *linked)
{
    struct rfs_planner *whole = linked->by_rules->config.whole;
    const struct rfs_target *target = rfs_by_rules_target(linked->by_rules, linked->link->source);
    struct sources *walk = &linked->pieces.sources;
    struct rfs_rules_spans spans = {0};
    struct rfs_cells there;

    if (!touches(linked))
        return 0;
    *walk = begin(whole, 0, target, 0);
    walk->each = add_linked;
    walk->ctx = linked;
    linked->source_ndim = rfs_catalog_type(whole->config.catalog, target->type)->ndim;
    int rc = rfs_rules_spans_in(linked->map, linked->link, RFS_MADE, linked->made->type.ndim,
                                linked->pieces.cells.lo, linked->pieces.cells.hi, NULL, &spans);
    for (size_t i = 0; rc == 0 && i < spans.n; i++) {
        linked->span = spans.data + i;
        rfs_rules_span_box(linked->map, linked->link, RFS_SOURCE, linked->source_ndim, linked->span,
                           there.lo, there.hi);
        rc = walk_sources(walk, &there);
    }
    free(spans.data);
    return rc;
}

static int take_links(struct pieces *pieces)
{
    struct linked *linked = (struct linked *)pieces;
    const struct rfs_rules_made *made = linked->made;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < made->n; i++) {
        linked->link = &linked->map->links.data[made->links + i];
        rc = take_link(linked);
    }
    return rc;
}

static int walk_linked(struct rfs_planner *planner, uint32_t local, const struct rfs_target *target,
                       const struct rfs_plan_part *part, rfs_piece_fn *each, void *ctx)
{
    const struct rfs_by_rules *by_rules = planner->config.by_rules;
    struct rfs_catalog *catalog = by_rules->config.catalog;
    struct linked linked = {.by_rules = by_rules,
                            .map = by_rules->map,
                            .made = rfs_by_rules_made(by_rules, target->name)};
    uint32_t lost;
    struct rfs_use use;

    if (!linked.made || rfs_by_rules_needs_lost(by_rules, target->name, &lost))
        return -EIO;
    linked.pieces.part = part;
    linked.pieces.each = each;
    linked.pieces.ctx = ctx;
    int rc = set_geometry(&linked.pieces, planner, local, target, &linked.made->type);
    if (rc)
        return rc;
    const struct rfs_geometry *geometry = linked.pieces.geometry;
    uint64_t step = geometry->item;
    for (uint32_t a = geometry->ndim; a-- > 0; step *= geometry->dst_dims[a])
        linked.stride[a] = step;
    rfs_catalog_begin(catalog, &use);
    rc = each_box(&linked.pieces, take_links);
    rfs_catalog_end(catalog, &use);
    free(linked.spans.data);
    return rc;
}

/* ---- the walks ------------------------------------------------------------------------------- */

int rfs_plan_pieces(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                    const struct rfs_plan_part *part, uint32_t copy, rfs_piece_fn *each, void *ctx)
{
    struct rfs_catalog *catalog = planner->config.catalog;
    const uint32_t local = rank % planner->scale.dst_devices;
    struct rfs_use use;

    if (rfs_catalog_type(catalog, target->type)->bytes == 0)
        return 0;
    if (planner->config.by_rules)
        return walk_linked(planner, local, target, part, each, ctx);
    struct pieces pieces = {.part = part, .each = each, .ctx = ctx};
    pieces.sources = begin(planner, local, target, copy);
    rfs_catalog_begin(catalog, &use);
    const int rc = walk_direct(&pieces, local);
    rfs_catalog_end(catalog, &use);
    return rc;
}

int rfs_plan_chunks(struct rfs_planner *planner, uint32_t local, const struct rfs_target *target,
                    rfs_piece_source_fn *each, void *ctx)
{
    const struct rfs_type *type = rfs_catalog_type(planner->config.catalog, target->type);
    struct pieces pieces = {.part = NULL};

    if (type->bytes == 0)
        return 0;
    pieces.sources = begin(planner, local, target, 0);
    pieces.sources.unlocated = true;
    pieces.sources.each = each;
    pieces.sources.ctx = ctx;
    return set_geometry(&pieces, planner, local, target, type) ?: each_box(&pieces, take_box);
}

/* ---- targets of other stages ----------------------------------------------------------------- */

/* Returns the type of a parameter in the first rank of a stage that has it, or RFS_NO_ID. */
static uint32_t type_in_stage(struct rfs_planner *planner, uint32_t name, uint32_t stage)
{
    const uint32_t base = rfs_plan_base(planner, stage);
    const struct rfs_entry *entry = NULL;
    struct rfs_use use;

    rfs_catalog_begin(planner->config.catalog, &use);
    for (uint32_t r = 0; !entry && r < planner->scale.src_devices; r++) {
        const struct rfs_index *index = index_of_rank(planner, base + r, stage);
        entry = index ? rfs_index_find(index, name) : NULL;
    }
    const uint32_t type = entry ? entry->type : RFS_NO_ID;
    rfs_catalog_end(planner->config.catalog, &use);
    return type;
}

int rfs_planner_twin(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                     uint32_t stage, struct rfs_target *out, struct rfs_error *err)
{
    const struct rfs_scale *scale = &planner->scale;

    *out = *target;
    if (stage == target->stage)
        return 1;
    const uint32_t type = type_in_stage(planner, target->name, stage);
    if (type == RFS_NO_ID)
        return 0;
    const struct rfs_role role =
        rfs_plan_role(planner, target->name, stage, rank / scale->dst_devices);
    out->stage = stage;
    out->type = type;
    out->geometry = RFS_NO_ID;
    if (role.kind == RFS_ROLE_DROPPED)
        return 0;
    if (role.kind == RFS_ROLE_COPIED)
        return 1;
    const int rc = rfs_plan_geometry(planner, &role, type, target->name, &out->geometry, err);
    if (rc)
        return rc;
    const struct rfs_geometry *geometry = rfs_plan_geometry_at(planner, out->geometry);
    return rfs_plan_target_type(planner, geometry, rank % scale->dst_devices, &out->type)
               ? rfs_fail_memory(err)
               : 1;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Returns the number of further copies of the chunk of a tensor that has the most. */
static uint32_t most_copies(const struct rfs_chunks *chunks,
                            const struct rfs_chunked_tensor *tensor)
{
    uint32_t most = 0;

    for (uint32_t i = 0; tensor && i < tensor->n; i++) {
        const uint32_t n = rfs_chunks_count_copies(chunks, tensor->first + i);
        most = n > most ? n : most;
    }
    return most;
}

uint32_t rfs_planner_copies(struct rfs_planner *planner, const struct rfs_target *target)
{
    const struct rfs_chunks *chunks = find_chunks(planner);

    if (chunks)
        return 1 +
               (chunks->copies ? most_copies(chunks, rfs_plan_chunked_tensor(planner, target)) : 0);
    return target->geometry == RFS_NO_ID
               ? planner->scale.src_devices
               : rfs_plan_geometry_at(planner, target->geometry)->src.replicas;
}

/* A slice while its blocks are collected. */
struct copying {
    struct rfs_slice *slice;
    struct rfs_copy *found;
};

static int add_block(void *ctx, const struct rfs_piece *piece)
{
    struct copying *copying = ctx;
    struct rfs_block *block = rfs_slice_add(copying->slice);

    if (!block)
        return -ENOMEM;
    *block = piece->block;
    copying->found->others += piece->source->other;
    if (piece->source->odd != RFS_NO_RANK)
        copying->found->odd = piece->source->odd;
    return 0;
}

/* Makes the slice of a part of a target, or of all of it. SLICE has its bytes. */
static int collect(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                   const struct rfs_plan_part *part, uint32_t copy, struct rfs_slice *slice,
                   struct rfs_copy *out)
{
    const struct rfs_by_rules *by_rules = planner->config.by_rules;
    struct copying copying = {slice, out};

    *out = (struct rfs_copy){.odd = RFS_NO_RANK};
    slice->n = 0;
    int rc = slice->bytes > 0 && by_rules && rfs_by_rules_is_compared(by_rules, target->name)
                 ? by_rules->config.compare(by_rules->config.ctx)
                 : 0;
    if (rc == 0 && slice->bytes > 0)
        rc = rfs_plan_pieces(planner, rank, target, part, copy, add_block, &copying);
    if (rc)
        return rc;
    rfs_slice_sort(slice);
    rfs_slice_name(slice);
    return 0;
}

int rfs_planner_copy(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                     uint32_t copy, struct rfs_slice *slice, struct rfs_copy *out)
{
    slice->bytes = rfs_catalog_type(planner->config.catalog, target->type)->bytes;
    return collect(planner, rank, target, NULL, copy, slice, out);
}

int rfs_planner_slice(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                      struct rfs_slice *slice)
{
    struct rfs_copy found = {0};

    return rfs_planner_copy(planner, rank, target, 0, slice, &found);
}

int rfs_planner_box(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                    const uint64_t *lo, const uint64_t *hi, struct rfs_slice *slice)
{
    const struct rfs_type *type = rfs_catalog_type(planner->config.catalog, target->type);
    const struct rfs_plan_part part = {lo, hi};
    struct rfs_copy found = {0};

    slice->bytes = type->bytes > 0 ? rfs_dtype_bytes((enum rfs_dtype)type->dtype) : 0;
    for (uint32_t i = 0; i < type->ndim; i++)
        slice->bytes *= hi[i] - lo[i];
    return collect(planner, rank, target, &part, 0, slice, &found);
}

/* A walk over copies that cannot be compared. */
struct bad_copies {
    struct rfs_chunks *chunks;
    rfs_bad_copy_fn *each;
    void *ctx;
};

static void tell_bad(const struct bad_copies *walk, uint32_t chunk,
                     const struct rfs_chunked_copy *copy, const struct rfs_error *why)
{
    const struct rfs_chunks *chunks = walk->chunks;
    const struct rfs_type *want = rfs_chunks_type_of(chunks, chunk);
    const struct rfs_bad_copy bad = {
        .file = rfs_files_path(chunks->files, copy->file),
        .why = why->code ? why : NULL,
        .type = copy->type == RFS_NO_ID ? NULL : rfs_chunks_type(chunks, copy->type),
        .at = rfs_files_offset(chunks->files, copy->file, copy->at),
        .want = want,
        .begin = chunks->chunks.data[chunk].corner * rfs_dtype_bytes((enum rfs_dtype)want->dtype),
    };

    walk->each(walk->ctx, &bad);
}

static int tell_bad_copies(void *ctx, const struct rfs_piece_source *source)
{
    const struct bad_copies *walk = ctx;
    const uint32_t n = rfs_chunks_count_copies(walk->chunks, source->chunk);
    /* A damaged file counts as a copy then; other failures are seen by its readers. */
    int rc = rfs_chunks_locate(walk->chunks, source->chunk, NULL);

    rc = rc == -EINTR || rc == -ENOMEM ? rc : 0;
    for (uint32_t i = 0; rc >= 0 && i < n; i++) {
        struct rfs_chunked_copy copy;
        struct rfs_error why = {0};
        rc = find_copy(walk->chunks, source->chunk, i, &copy, &why);
        if (rc == 0)
            tell_bad(walk, source->chunk, &copy, &why);
    }
    return rc < 0 ? rc : 0;
}

int rfs_planner_bad_copies(struct rfs_planner *planner, uint32_t rank,
                           const struct rfs_target *target, rfs_bad_copy_fn *each, void *ctx)
{
    struct bad_copies walk = {find_chunks(planner), each, ctx};

    return walk.chunks && walk.chunks->copies
               ? rfs_plan_chunks(planner, rank % planner->scale.dst_devices, target,
                                 tell_bad_copies, &walk)
               : 0;
}
