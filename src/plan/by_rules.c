/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/by_rules.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "plan/chunked.h"

struct rfs_by_rules {
    struct rfs_by_rules_config config;
    const struct rfs_rank_plan *plan; /* of the whole source */
    struct rfs_rules_map *map;
    struct rfs_catalog *catalog;
    const struct rfs_index *index; /* of the catalogue, by number of the made tensor */
    /* [made] a source tensor that is needed and not complete, or RFS_NO_ID; owned */
    uint32_t *lost;
};

void rfs_by_rules_free(struct rfs_by_rules *by_rules)
{
    if (!by_rules)
        return;
    rfs_catalog_close(by_rules->catalog);
    rfs_rules_map_free(by_rules->map);
    free(by_rules->lost);
    free(by_rules);
}

RFS_CLEANUP_OF(by_rules_cleanup, struct rfs_by_rules *, rfs_by_rules_free)

static int compile(struct rfs_by_rules *by_rules, struct rfs_error *err)
{
    struct rfs_catalog *catalog = by_rules->config.catalog;
    const struct rfs_params *params = by_rules->plan->params;
    RFS_FREE struct rfs_rules_tensor *tensors = calloc(params->n + 1, sizeof *tensors);
    RFS_CLEANUP(rfs_plan_vanished_end) struct rfs_vanished vanished = {.names = {.n = 0}};

    if (!tensors || rfs_plan_find_vanished(by_rules->config.whole, params, &vanished))
        return rfs_fail_memory(err);
    const struct rfs_rules_input input = {.config = by_rules->config.hf_config,
                                          .options = by_rules->config.options,
                                          .source = rfs_catalog_path(catalog),
                                          .tensors = tensors,
                                          .n = params->n,
                                          .lost = vanished.names.data,
                                          .n_lost = vanished.names.n};
    for (size_t i = 0; i < params->n; i++)
        tensors[i] = (struct rfs_rules_tensor){rfs_catalog_name(catalog, params->targets[i].name),
                                               rfs_catalog_type(catalog, params->targets[i].type)};
    const int rc = rfs_rules_compile(by_rules->config.rules, &input, &by_rules->map, err);
    if (rc)
        return rc;
    const size_t lost = by_rules->map->lost;
    if (lost < vanished.names.n)
        return rfs_plan_fail_lost(by_rules->config.whole, vanished.names.data[lost],
                                  vanished.ranks.data[lost], err);
    if (by_rules->map->dropped > 0)
        rfs_log(by_rules->config.log, RFS_INFO,
                "conversion leaves out %zu of %zu values, which the rules drop: '%s'%s",
                by_rules->map->dropped, params->n, by_rules->map->first_dropped,
                by_rules->map->dropped > 1 ? " and others" : "");
    return 0;
}

static int derive(struct rfs_by_rules *by_rules, struct rfs_error *err)
{
    const struct rfs_rules_map *map = by_rules->map;
    struct rfs_tables *tables = rfs_catalog_tables(by_rules->config.catalog);
    RFS_FREE struct rfs_entry *entries = calloc(map->made.n + 1, sizeof *entries);

    if (!entries)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < map->made.n; i++) {
        const struct rfs_rules_made *made = &map->made.data[i];
        entries[i].name = rfs_intern_add(tables->names, made->name, strlen(made->name));
        entries[i].type = rfs_intern_add(tables->types, &made->type, sizeof made->type);
        if (entries[i].name == RFS_NO_ID || entries[i].type == RFS_NO_ID)
            return rfs_fail_memory(err);
    }
    const int rc =
        rfs_catalog_derive(by_rules->config.catalog, entries, map->made.n, &by_rules->catalog, err);
    if (rc == 0)
        by_rules->index = rfs_catalog_ready(by_rules->catalog, 0);
    return rc;
}

/* ---- incomplete tensors ---------------------------------------------------------------------- */

static bool is_incomplete(const struct rfs_by_rules *by_rules, uint32_t source)
{
    return rfs_plan_is_incomplete(by_rules->config.whole,
                                  by_rules->plan->params->targets[source].name);
}

bool rfs_by_rules_can_compare(const struct rfs_by_rules *by_rules,
                              const struct rfs_rules_copy *copy)
{
    return !is_incomplete(by_rules, copy->copy) && !is_incomplete(by_rules, copy->original);
}

/* Finds a copy of a source tensor that is incomplete, and so can't be compared with it. */
static uint32_t find_lost_copy(const struct rfs_by_rules *by_rules, uint32_t original)
{
    const struct rfs_rules_map *map = by_rules->map;

    for (size_t i = 0; i < map->copies.n; i++)
        if (map->copies.data[i].original == original &&
            is_incomplete(by_rules, map->copies.data[i].copy))
            return map->copies.data[i].copy;
    return RFS_NO_ID;
}

static uint32_t find_lost_source(const struct rfs_by_rules *by_rules,
                                 const struct rfs_rules_made *made)
{
    uint32_t lost = RFS_NO_ID;

    for (size_t i = 0; i < made->n && lost == RFS_NO_ID; i++) {
        const uint32_t source = by_rules->map->links.data[made->links + i].source;
        if (is_incomplete(by_rules, source))
            lost = source;
        else if (made->compared)
            lost = find_lost_copy(by_rules, source);
    }
    return lost;
}

static int find_lost(struct rfs_by_rules *by_rules, struct rfs_error *err)
{
    const struct rfs_rules_map *map = by_rules->map;

    by_rules->lost = malloc((map->made.n + 1) * sizeof *by_rules->lost);
    if (!by_rules->lost)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < map->made.n; i++)
        by_rules->lost[i] = find_lost_source(by_rules, &map->made.data[i]);
    return 0;
}

const struct rfs_rules_made *rfs_by_rules_made(const struct rfs_by_rules *by_rules, uint32_t name)
{
    const struct rfs_entry *entry = rfs_index_find(by_rules->index, name);

    return entry ? &by_rules->map->made.data[entry - by_rules->index->entries] : NULL;
}

bool rfs_by_rules_is_compared(const struct rfs_by_rules *by_rules, uint32_t name)
{
    const struct rfs_rules_made *made = rfs_by_rules_made(by_rules, name);

    return made && made->compared;
}

bool rfs_by_rules_needs_lost(const struct rfs_by_rules *by_rules, uint32_t name, uint32_t *source)
{
    const struct rfs_rules_made *made = by_rules ? rfs_by_rules_made(by_rules, name) : NULL;

    *source = made ? by_rules->lost[made - by_rules->map->made.data] : RFS_NO_ID;
    return *source != RFS_NO_ID;
}

size_t rfs_by_rules_incomplete(const struct rfs_by_rules *by_rules)
{
    size_t n = 0;

    for (size_t i = 0; i < by_rules->map->made.n; i++)
        n += by_rules->lost[i] != RFS_NO_ID;
    return n;
}

uint32_t rfs_by_rules_lost(const struct rfs_by_rules *by_rules, uint32_t source)
{
    const struct rfs_lacking *incomplete = by_rules->config.whole->config.incomplete;

    return incomplete->from.data[by_rules->plan->params->targets[source].name] - 1;
}

int rfs_by_rules_fail_lost(const struct rfs_planner *planner, const char *made, uint32_t source,
                           struct rfs_error *err)
{
    const struct rfs_by_rules *by_rules = planner->config.by_rules;
    struct rfs_catalog *catalog = by_rules->config.catalog;
    const uint32_t rank = rfs_by_rules_lost(by_rules, source);

    return rfs_fail(err, -ENOENT, RFS_OF(rfs_catalog_path(catalog), made),
                    "the checkpoint of that rank; or names=FILE with null for each tensor that is "
                    "incomplete",
                    "needs '%s', which is incomplete: rank_%u %s, and no other rank is known to "
                    "hold the same",
                    rfs_catalog_name(catalog, by_rules->plan->params->targets[source].name), rank,
                    rfs_catalog_has(catalog, rank) ? "does not have its part"
                                                   : "has no checkpoint");
}

int rfs_by_rules_check_lost(const struct rfs_planner *planner, struct rfs_error *err)
{
    const struct rfs_by_rules *by_rules = planner->config.by_rules;
    const struct rfs_rules_map *map = by_rules->map;

    for (size_t i = 0; i < map->made.n; i++)
        if (by_rules->lost[i] != RFS_NO_ID &&
            rfs_names_shown(planner->config.output_map, map->made.data[i].name))
            return rfs_by_rules_fail_lost(planner, map->made.data[i].name, by_rules->lost[i], err);
    return 0;
}

int rfs_by_rules_new(const struct rfs_by_rules_config *config, struct rfs_by_rules **out,
                     struct rfs_error *err)
{
    RFS_CLEANUP(by_rules_cleanup) struct rfs_by_rules *by_rules = calloc(1, sizeof *by_rules);

    *out = NULL;
    if (!by_rules)
        return rfs_fail_memory(err);
    by_rules->config = *config;
    int rc = rfs_planner_rank(config->whole, 0, &by_rules->plan, err)
            ?: compile(by_rules, err)
            ?: derive(by_rules, err)
            ?: find_lost(by_rules, err);
    if (!rc)
        *out = RFS_STEAL(by_rules);
    return rc;
}

struct rfs_catalog *rfs_by_rules_catalog(const struct rfs_by_rules *by_rules)
{
    return by_rules->catalog;
}

const struct rfs_rules_map *rfs_by_rules_map(const struct rfs_by_rules *by_rules)
{
    return by_rules->map;
}

size_t rfs_by_rules_sources(const struct rfs_by_rules *by_rules)
{
    return by_rules->plan->params->n;
}

struct rfs_planner *rfs_by_rules_whole(const struct rfs_by_rules *by_rules)
{
    return by_rules->config.whole;
}

const struct rfs_target *rfs_by_rules_target(const struct rfs_by_rules *by_rules, uint32_t source)
{
    return &by_rules->plan->params->targets[source];
}

enum rfs_dtype rfs_by_rules_dtype(const struct rfs_by_rules *by_rules, uint32_t name,
                                  enum rfs_dtype from)
{
    const struct rfs_rules_made *made = rfs_by_rules_made(by_rules, name);

    return made ? made->shown : from;
}

/* ---- where the source has a tensor ----------------------------------------------------------- */

/* A box of a whole tensor, as it is stored: in one file, with a stride for each axis. */
struct stored {
    uint64_t at[RFS_MAX_DIMS];     /* in the whole tensor */
    uint64_t size[RFS_MAX_DIMS];   /* elements */
    uint64_t stride[RFS_MAX_DIMS]; /* bytes */
    uint64_t begin;                /* place of its first element in the content */
    uint32_t file;
    struct rfs_content content;
    uint32_t rank; /* the source rank that gives it, or the number of the file of a checkpoint that
                      describes itself */
    uint64_t slice_at[RFS_MAX_DIMS]; /* where the box begins in the slice of that rank or file */
};

/* Takes a stored box. A result that is not 0 ends the walk. */
typedef int stored_fn(void *ctx, const struct stored *stored);

/* A walk over the stored boxes of one target. */
struct walk {
    struct rfs_planner *planner;
    const struct rfs_target *target;
    struct rfs_provider_query query;
    stored_fn *each;
    void *ctx;
};

static void set_row_major(const struct rfs_type *type, const uint64_t *dims, struct stored *stored)
{
    uint64_t step = rfs_dtype_bytes((enum rfs_dtype)type->dtype);

    for (uint32_t i = type->ndim; i-- > 0; step *= dims[i])
        stored->stride[i] = step;
}

/* Sets the file and the strides of the slice in the rank that gives a piece. */
static int locate(const struct walk *walk, const struct rfs_plan_piece *piece, const uint64_t *dims,
                  struct stored *stored)
{
    struct rfs_catalog *catalog = walk->planner->config.catalog;
    const struct rfs_target *target = walk->target;
    const uint32_t rank = rfs_plan_provider(&walk->query, piece);
    const struct rfs_index *index;
    const struct rfs_entry *entry;
    const int rc = rfs_plan_find_entry(&walk->query, target->stage, rank, &index, &entry);

    if (rc)
        return rc;
    const struct rfs_type *type = rfs_catalog_type(catalog, entry->type);
    const uint64_t *strides = rfs_index_strides(index, entry);
    stored->rank = rank;
    stored->file = rfs_catalog_entry_file(catalog, rank, index, entry);
    if (strides)
        memcpy(stored->stride, strides, type->ndim * sizeof *strides);
    else
        set_row_major(type, dims, stored);
    return rfs_catalog_content(catalog, index, entry, &stored->content);
}

static int walk_copied(const struct walk *walk)
{
    const struct rfs_planner *planner = walk->planner;
    const struct rfs_target *target = walk->target;
    const struct rfs_plan_piece piece = rfs_plan_piece_copied(&walk->query, target->stage);
    const struct rfs_type *type = rfs_catalog_type(planner->config.catalog, target->type);
    struct stored stored = {.begin = 0};

    memcpy(stored.size, type->dims, sizeof stored.size);
    return locate(walk, &piece, type->dims, &stored) ?: walk->each(walk->ctx, &stored);
}

/* Walks through the cells of the source that a box touches. */
static int walk_cut(const struct walk *walk, const struct rfs_geometry *geometry,
                    const uint64_t *lo, const uint64_t *hi)
{
    const struct rfs_grid *grid = &geometry->src;
    uint32_t first[RFS_MAX_DIMS] = {0};
    uint32_t last[RFS_MAX_DIMS] = {0};
    uint32_t cell[RFS_MAX_DIMS] = {0};

    for (uint32_t i = 0; i < geometry->ndim; i++) {
        cell[i] = first[i] = rfs_grid_piece(grid, geometry->whole, i, lo[i]);
        last[i] = rfs_grid_piece(grid, geometry->whole, i, hi[i] - 1);
    }
    for (;;) {
        const struct rfs_plan_piece piece = rfs_plan_piece_cell(geometry, cell);
        struct stored stored = {.begin = 0};
        int rc = locate(walk, &piece, geometry->src_dims, &stored);
        for (uint32_t i = 0; i < geometry->ndim; i++) {
            stored.at[i] = rfs_grid_begin(grid, geometry->whole, i, cell[i]);
            stored.size[i] = rfs_grid_length(grid, geometry->whole, i, cell[i]);
        }
        if (geometry->ndim > 0)
            stored.slice_at[0] = cell[0] / (grid->pieces[0] / grid->rounds) * stored.size[0];
        stored.begin = stored.slice_at[0] * stored.stride[0];
        rc = rc ? rc : walk->each(walk->ctx, &stored);
        if (rc)
            return rc;
        uint32_t i = geometry->ndim;
        while (i > 0 && cell[i - 1] == last[i - 1]) {
            cell[i - 1] = first[i - 1];
            i--;
        }
        if (i == 0)
            return 0;
        cell[i - 1]++;
    }
}

static int walk_chunks(const struct walk *walk, const uint64_t *lo, const uint64_t *hi)
{
    struct rfs_chunks *chunks = rfs_catalog_chunks(walk->planner->config.catalog);
    const struct rfs_chunked_tensor *tensor = rfs_plan_chunked_tensor(walk->planner, walk->target);
    struct rfs_chunks_walk inner;
    struct rfs_chunk_box part;

    if (!tensor)
        return -EIO;
    rfs_chunks_walk_begin(chunks, tensor, lo, hi, &inner);
    while (rfs_chunks_walk_next(&inner, &part)) {
        struct stored stored = {.begin = 0};
        struct rfs_stored_box there;
        struct rfs_error err = {0};
        int rc = rfs_chunks_locate_box(chunks, &part, &there, &err);
        if (rc && err.text[0])
            rfs_log_limited(walk->planner->config.log, RFS_ERROR, "%s", err.text);
        if (rc)
            return rc;
        stored.file = there.file;
        stored.rank = there.file - chunks->first_file;
        stored.content = (struct rfs_content){.offset = there.at};
        memcpy(stored.at, part.at, sizeof stored.at);
        memcpy(stored.size, part.size, sizeof stored.size);
        memcpy(stored.stride, there.stride, sizeof stored.stride);
        rc = walk->each(walk->ctx, &stored);
        if (rc)
            return rc;
    }
    return 0;
}

/*
 * Calls EACH for the stored boxes that the box from LO to HI (exclusive, not empty) of a target of
 * rank 0 touches; they may reach beyond it. Within a use of the catalogue. 0 or -errno.
 */
static int walk_stored(struct rfs_planner *planner, const struct rfs_target *target,
                       const uint64_t *lo, const uint64_t *hi, stored_fn *each, void *ctx)
{
    const struct walk walk = {
        .planner = planner,
        .target = target,
        .query = rfs_plan_query_of(planner, 0, target),
        .each = each,
        .ctx = ctx,
    };

    if (rfs_catalog_chunks(planner->config.catalog))
        return walk_chunks(&walk, lo, hi);
    return target->geometry == RFS_NO_ID
               ? walk_copied(&walk)
               : walk_cut(&walk, rfs_plan_geometry_at(planner, target->geometry), lo, hi);
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* A slice while its blocks are found. */
struct slicing {
    const struct rfs_by_rules *by_rules;
    struct rfs_slice *slice;
    uint32_t item;
    struct rfs_cells cells;        /* the present box of the destination */
    uint64_t stride[RFS_MAX_DIMS]; /* in the slice, in bytes */
    uint32_t made_ndim;
    const struct rfs_rules_link *link; /* the present one */
    const struct rfs_rules_span *span; /* its digits that lie in the box */
    uint32_t source_ndim;
    struct rfs_rules_spans spans; /* digits that lie in a stored box, too */
    rfs_by_rules_fn *each;        /* NULL but in a walk */
    void *ctx;
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

static int add_block(struct slicing *slicing, const struct stored *stored,
                     const struct rfs_rules_span *span)
{
    const struct rfs_rules_map *map = slicing->by_rules->map;
    const struct rfs_rules_link *link = slicing->link;
    const uint64_t *made_at = map->ats.data + link->at[RFS_MADE];
    const uint64_t *source_at = map->ats.data + link->at[RFS_SOURCE];
    struct rfs_slice *slice = slicing->slice;
    uint64_t dst[RFS_MAX_DIMS] = {0}; /* of the first element, along each axis */
    uint64_t src[RFS_MAX_DIMS] = {0};
    uint64_t len[RFS_RULES_DIGITS];
    uint64_t dst_stride[RFS_RULES_DIGITS];
    uint64_t src_stride[RFS_RULES_DIGITS];

    for (uint32_t a = 0; a < slicing->made_ndim; a++)
        dst[a] = made_at[a];
    for (uint32_t a = 0; a < slicing->source_ndim; a++)
        src[a] = source_at[a];
    for (uint32_t k = 0; k < link->n; k++) {
        const struct rfs_rules_digit *digit = &map->digits.data[link->digits + k];
        len[k] = span->end[k] - span->first[k];
        dst[digit->axis[RFS_MADE]] += span->first[k] * digit->step[RFS_MADE];
        src[digit->axis[RFS_SOURCE]] += span->first[k] * digit->step[RFS_SOURCE];
        dst_stride[k] = digit->step[RFS_MADE] * slicing->stride[digit->axis[RFS_MADE]];
        src_stride[k] = digit->step[RFS_SOURCE] * stored->stride[digit->axis[RFS_SOURCE]];
    }
    struct rfs_block *block = rfs_slice_add(slice);
    if (!block)
        return -ENOMEM;
    *block =
        (struct rfs_block){.file = stored->file, .content = stored->content, .src = stored->begin};
    for (uint32_t a = 0; a < slicing->made_ndim; a++)
        block->dst += (dst[a] - slicing->cells.lo[a] + (a == 0 ? slicing->cells.row : 0)) *
                      slicing->stride[a];
    for (uint32_t a = 0; a < slicing->source_ndim; a++)
        block->src += (src[a] - stored->at[a]) * stored->stride[a];
    rfs_slice_block_box(block, link->n, len, slicing->item, dst_stride, src_stride);
    block->strided = !is_nested(block);
    if (!slicing->each)
        return 0;
    const struct rfs_by_rules_piece piece = {link,  span,       stored->rank,
                                             block, stored->at, stored->slice_at};
    return slicing->each(slicing->ctx, &piece);
}

/* Takes the part of the present digits that a stored box has. */
static int take_stored(void *ctx, const struct stored *stored)
{
    struct slicing *slicing = ctx;
    uint64_t hi[RFS_MAX_DIMS];
    int rc;

    for (uint32_t a = 0; a < slicing->source_ndim; a++)
        hi[a] = stored->at[a] + stored->size[a];
    slicing->spans.n = 0;
    rc = rfs_rules_spans_in(slicing->by_rules->map, slicing->link, RFS_SOURCE, slicing->source_ndim,
                            stored->at, hi, slicing->span, &slicing->spans);
    for (size_t i = 0; rc == 0 && i < slicing->spans.n; i++)
        rc = add_block(slicing, stored, &slicing->spans.data[i]);
    return rc;
}

/* Takes the part of the present box of the destination that a link gives. */
static int take_link(struct slicing *slicing, const struct rfs_rules_link *link)
{
    const struct rfs_by_rules *by_rules = slicing->by_rules;
    const struct rfs_rules_map *map = by_rules->map;
    const struct rfs_target *target = &by_rules->plan->params->targets[link->source];
    struct rfs_rules_span all;
    struct rfs_rules_spans spans = {0};
    uint64_t lo[RFS_MAX_DIMS];
    uint64_t hi[RFS_MAX_DIMS];

    rfs_rules_span_all(map, link, &all);
    rfs_rules_span_box(map, link, RFS_MADE, slicing->made_ndim, &all, lo, hi);
    for (uint32_t a = 0; a < slicing->made_ndim; a++)
        if (hi[a] <= slicing->cells.lo[a] || lo[a] >= slicing->cells.hi[a])
            return 0;
    slicing->link = link;
    slicing->source_ndim = rfs_catalog_type(by_rules->config.catalog, target->type)->ndim;
    int rc = rfs_rules_spans_in(map, link, RFS_MADE, slicing->made_ndim, slicing->cells.lo,
                                slicing->cells.hi, NULL, &spans);
    for (size_t i = 0; rc == 0 && i < spans.n; i++) {
        slicing->span = spans.data + i;
        rfs_rules_span_box(map, link, RFS_SOURCE, slicing->source_ndim, slicing->span, lo, hi);
        rc = walk_stored(by_rules->config.whole, target, lo, hi, take_stored, slicing);
    }
    free(spans.data);
    return rc;
}

/* Takes all boxes of a local rank of the destination. */
static int take_boxes(struct slicing *slicing, const struct rfs_geometry *geometry, uint32_t local,
                      const struct rfs_rules_made *made)
{
    struct rfs_cells *cells = &slicing->cells;
    uint32_t cell[RFS_MAX_DIMS];
    uint64_t step = slicing->item;
    int rc = 0;

    for (uint32_t a = geometry->ndim; a-- > 0; step *= geometry->dst_dims[a])
        slicing->stride[a] = step;
    rfs_geometry_cells(geometry, local, cells, cell);
    do {
        for (size_t i = 0; rc == 0 && i < made->n; i++)
            rc = take_link(slicing, &slicing->by_rules->map->links.data[made->links + i]);
    } while (rc == 0 && rfs_geometry_cells_next(geometry, cells, cell));
    return rc;
}

/* Finds the blocks of a target. SLICING has its slice, and the function for each piece. */
static int take_target(struct slicing *slicing, struct rfs_planner *planner, uint32_t local,
                       const struct rfs_target *target)
{
    const struct rfs_by_rules *by_rules = planner->config.by_rules;
    const struct rfs_rules_made *made = rfs_by_rules_made(by_rules, target->name);
    const bool cut = target->geometry != RFS_NO_ID;
    struct rfs_geometry whole;
    struct rfs_use use;
    uint32_t lost;
    int rc = 0;

    if (!made || rfs_by_rules_needs_lost(by_rules, target->name, &lost))
        return -EIO;
    slicing->by_rules = by_rules;
    slicing->item = rfs_dtype_bytes((enum rfs_dtype)made->type.dtype);
    slicing->made_ndim = made->type.ndim;
    if (!cut)
        rc = rfs_geometry_resolve(&made->type, NULL, NULL, NULL, NULL, made->name, &whole, NULL);
    if (rc)
        return rc;
    rfs_catalog_begin(by_rules->config.catalog, &use);
    rc = take_boxes(slicing, cut ? rfs_plan_geometry_at(planner, target->geometry) : &whole,
                    cut ? local : 0, made);
    rfs_catalog_end(by_rules->config.catalog, &use);
    free(slicing->spans.data);
    return rc;
}

int rfs_by_rules_slice(struct rfs_planner *planner, uint32_t local, const struct rfs_target *target,
                       struct rfs_slice *slice)
{
    const struct rfs_by_rules *by_rules = planner->config.by_rules;
    struct slicing slicing = {.slice = slice};
    int rc = rfs_by_rules_is_compared(by_rules, target->name)
                 ? by_rules->config.compare(by_rules->config.ctx)
                 : 0;

    if (rc == 0)
        rc = take_target(&slicing, planner, local, target);
    if (rc == 0)
        rfs_slice_sort(slice);
    return rc;
}

int rfs_by_rules_walk(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                      rfs_by_rules_fn *each, void *ctx)
{
    struct rfs_slice slice = {0};
    struct slicing slicing = {.slice = &slice, .each = each, .ctx = ctx};
    const int rc = take_target(&slicing, planner, rank % planner->scale.dst_devices, target);

    rfs_slice_free(&slice);
    return rc;
}

int rfs_by_rules_attributes(struct rfs_planning *planning, struct rfs_rank_plan *plan)
{
    const struct rfs_rank_plan *whole = planning->planner->config.by_rules->plan;
    const struct rfs_params *params = plan->params;

    *plan = *whole;
    plan->params = params;
    plan->sources = malloc((whole->n_sources + 1) * sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(planning->err);
    memcpy(plan->sources, whole->sources, whole->n_sources * sizeof *plan->sources);
    return 0;
}
