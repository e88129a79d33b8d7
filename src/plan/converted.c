/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/converted.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "plan/stored.h"

struct rfs_by_rules {
    struct rfs_by_rules_config config;
    const struct rfs_rank_plan *plan; /* of the whole source */
    struct rfs_rules_map *map;
    struct rfs_catalog *catalog;
    const struct rfs_index *index; /* of the catalogue, by number of the made tensor */
    /* [made] owned; a source tensor that it needs and that is not complete, or RFS_NO_ID */
    uint32_t *lost;
};

void rfs_by_rules_free(struct rfs_by_rules *converted)
{
    if (!converted)
        return;
    rfs_catalog_close(converted->catalog);
    rfs_rules_map_free(converted->map);
    free(converted->lost);
    free(converted);
}

RFS_CLEANUP_OF(converted_cleanup, struct rfs_by_rules *, rfs_by_rules_free)

static int compile(struct rfs_by_rules *converted, struct rfs_error *err)
{
    struct rfs_catalog *catalog = converted->config.catalog;
    const struct rfs_params *params = converted->plan->params;
    RFS_FREE struct rfs_rules_tensor *tensors = calloc(params->n + 1, sizeof *tensors);
    RFS_CLEANUP(rfs_plan_vanished_end) struct rfs_vanished vanished = {.names = {.n = 0}};

    if (!tensors || rfs_plan_find_vanished(converted->config.whole, params, &vanished))
        return rfs_fail_memory(err);
    const struct rfs_rules_input input = {.config = converted->config.hf_config,
                                          .options = converted->config.options,
                                          .source = rfs_catalog_path(catalog),
                                          .tensors = tensors,
                                          .n = params->n,
                                          .lost = vanished.names.data,
                                          .n_lost = vanished.names.n};
    for (size_t i = 0; i < params->n; i++)
        tensors[i] = (struct rfs_rules_tensor){rfs_catalog_name(catalog, params->targets[i].name),
                                               rfs_catalog_type(catalog, params->targets[i].type)};
    const int rc = rfs_rules_compile(converted->config.rules, &input, &converted->map, err);
    if (rc)
        return rc;
    const size_t lost = converted->map->lost;
    if (lost < vanished.names.n)
        return rfs_plan_fail_lost(converted->config.whole, vanished.names.data[lost],
                                  vanished.ranks.data[lost], err);
    if (converted->map->dropped > 0)
        rfs_log(converted->config.log, RFS_INFO,
                "conversion leaves out %zu of %zu values, which the rules drop: '%s'%s",
                converted->map->dropped, params->n, converted->map->first_dropped,
                converted->map->dropped > 1 ? " and others" : "");
    return 0;
}

static int derive(struct rfs_by_rules *converted, struct rfs_error *err)
{
    const struct rfs_rules_map *map = converted->map;
    struct rfs_tables *tables = rfs_catalog_tables(converted->config.catalog);
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
    const int rc = rfs_catalog_derive(converted->config.catalog, entries, map->made.n,
                                      &converted->catalog, err);
    if (rc == 0)
        converted->index = rfs_catalog_ready(converted->catalog, 0);
    return rc;
}

/* ---- tensors that are not complete ----------------------------------------------------------- */

static bool is_incomplete(const struct rfs_by_rules *converted, uint32_t source)
{
    return rfs_plan_is_incomplete(converted->config.whole,
                                  converted->plan->params->targets[source].name);
}

bool rfs_by_rules_can_compare(const struct rfs_by_rules *converted,
                              const struct rfs_rules_copy *copy)
{
    return !is_incomplete(converted, copy->copy) && !is_incomplete(converted, copy->original);
}

/* The copy of a source tensor that is not complete, and so can't be compared with it. */
static uint32_t find_lost_copy(const struct rfs_by_rules *converted, uint32_t original)
{
    const struct rfs_rules_map *map = converted->map;

    for (size_t i = 0; i < map->copies.n; i++)
        if (map->copies.data[i].original == original &&
            is_incomplete(converted, map->copies.data[i].copy))
            return map->copies.data[i].copy;
    return RFS_NO_ID;
}

static uint32_t find_lost_source(const struct rfs_by_rules *converted,
                                 const struct rfs_rules_made *made)
{
    uint32_t lost = RFS_NO_ID;

    for (size_t i = 0; i < made->n && lost == RFS_NO_ID; i++) {
        const uint32_t source = converted->map->links.data[made->links + i].source;
        if (is_incomplete(converted, source))
            lost = source;
        else if (made->compared)
            lost = find_lost_copy(converted, source);
    }
    return lost;
}

static int find_lost(struct rfs_by_rules *converted, struct rfs_error *err)
{
    const struct rfs_rules_map *map = converted->map;

    converted->lost = malloc((map->made.n + 1) * sizeof *converted->lost);
    if (!converted->lost)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < map->made.n; i++)
        converted->lost[i] = find_lost_source(converted, &map->made.data[i]);
    return 0;
}

bool rfs_by_rules_needs_lost(const struct rfs_by_rules *converted, uint32_t name, uint32_t *source)
{
    const struct rfs_rules_made *made = converted ? rfs_by_rules_made(converted, name) : NULL;

    *source = made ? converted->lost[made - converted->map->made.data] : RFS_NO_ID;
    return *source != RFS_NO_ID;
}

size_t rfs_by_rules_incomplete(const struct rfs_by_rules *converted)
{
    size_t n = 0;

    for (size_t i = 0; i < converted->map->made.n; i++)
        n += converted->lost[i] != RFS_NO_ID;
    return n;
}

uint32_t rfs_by_rules_lost(const struct rfs_by_rules *converted, uint32_t source)
{
    const struct rfs_lacking *incomplete = converted->config.whole->config.incomplete;

    return incomplete->from.data[converted->plan->params->targets[source].name] - 1;
}

int rfs_plan_fail_made(const struct rfs_planner *planner, const char *made, uint32_t source,
                       struct rfs_error *err)
{
    const struct rfs_by_rules *converted = planner->config.converted;
    struct rfs_catalog *catalog = converted->config.catalog;
    const uint32_t rank = rfs_by_rules_lost(converted, source);

    return rfs_fail(err, -ENOENT, RFS_OF(rfs_catalog_path(catalog), made),
                    "the checkpoint of that rank; or names=FILE with null for each tensor that is "
                    "incomplete",
                    "needs '%s', which is incomplete: rank_%u %s, and no other rank is known to "
                    "hold the same",
                    rfs_catalog_name(catalog, converted->plan->params->targets[source].name), rank,
                    rfs_catalog_has(catalog, rank) ? "does not have its part"
                                                   : "has no checkpoint");
}

int rfs_plan_check_made(const struct rfs_planner *planner, struct rfs_error *err)
{
    const struct rfs_by_rules *converted = planner->config.converted;
    const struct rfs_rules_map *map = converted->map;

    for (size_t i = 0; i < map->made.n; i++)
        if (converted->lost[i] != RFS_NO_ID &&
            rfs_output_map_name(planner->config.output_map, map->made.data[i].name))
            return rfs_plan_fail_made(planner, map->made.data[i].name, converted->lost[i], err);
    return 0;
}

int rfs_by_rules_new(const struct rfs_by_rules_config *config, struct rfs_by_rules **out,
                     struct rfs_error *err)
{
    RFS_CLEANUP(converted_cleanup) struct rfs_by_rules *converted = calloc(1, sizeof *converted);

    *out = NULL;
    if (!converted)
        return rfs_fail_memory(err);
    converted->config = *config;
    int rc = rfs_planner_rank(config->whole, 0, &converted->plan, err)
            ?: compile(converted, err)
            ?: derive(converted, err)
            ?: find_lost(converted, err);
    if (!rc)
        *out = RFS_STEAL(converted);
    return rc;
}

struct rfs_catalog *rfs_by_rules_catalog(const struct rfs_by_rules *converted)
{
    return converted->catalog;
}

const struct rfs_rules_map *rfs_by_rules_map(const struct rfs_by_rules *converted)
{
    return converted->map;
}

size_t rfs_by_rules_sources(const struct rfs_by_rules *converted)
{
    return converted->plan->params->n;
}

struct rfs_planner *rfs_by_rules_whole(const struct rfs_by_rules *converted)
{
    return converted->config.whole;
}

const struct rfs_target *rfs_by_rules_target(const struct rfs_by_rules *converted, uint32_t source)
{
    return &converted->plan->params->targets[source];
}

const struct rfs_rules_made *rfs_by_rules_made(const struct rfs_by_rules *converted, uint32_t name)
{
    const struct rfs_entry *entry = rfs_index_find(converted->index, name);

    return entry ? &converted->map->made.data[entry - converted->index->entries] : NULL;
}

enum rfs_dtype rfs_by_rules_dtype(const struct rfs_by_rules *converted, uint32_t name,
                                  enum rfs_dtype from)
{
    const struct rfs_rules_made *made = rfs_by_rules_made(converted, name);

    return made ? made->shown : from;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A slice while its blocks are found. */
struct slicing {
    const struct rfs_by_rules *converted;
    struct rfs_slice *slice;
    uint32_t item;
    /* The present box of the destination; where it lies in the slice; strides there, in bytes. */
    struct rfs_cells cells;
    uint64_t stride[RFS_MAX_DIMS];
    uint32_t made_ndim;
    /* The present link, and the digits that lie in the box. */
    const struct rfs_rules_link *link;
    const struct rfs_rules_span *span;
    uint32_t source_ndim;
    struct rfs_rules_spans spans; /* in a stored box */
    rfs_by_rules_fn *each;        /* NULL but in a walk */
    void *ctx;
};

/* Whether the runs of the block are ascending in the source, one behind the other. */
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

static int add_block(struct slicing *slicing, const struct rfs_stored *stored,
                     const struct rfs_rules_span *span)
{
    const struct rfs_rules_map *map = slicing->converted->map;
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
    rfs_block_box(block, link->n, len, slicing->item, dst_stride, src_stride);
    block->strided = !is_nested(block);
    if (!slicing->each)
        return 0;
    const struct rfs_by_rules_piece piece = {link,  span,       stored->rank,
                                             block, stored->at, stored->slice_at};
    return slicing->each(slicing->ctx, &piece);
}

/* Takes the part of the present digits that a stored box has. */
static int take_stored(void *ctx, const struct rfs_stored *stored)
{
    struct slicing *slicing = ctx;
    uint64_t hi[RFS_MAX_DIMS];
    int rc;

    for (uint32_t a = 0; a < slicing->source_ndim; a++)
        hi[a] = stored->at[a] + stored->size[a];
    slicing->spans.n = 0;
    rc = rfs_rules_spans_in(slicing->converted->map, slicing->link, RFS_SOURCE,
                            slicing->source_ndim, stored->at, hi, slicing->span, &slicing->spans);
    for (size_t i = 0; rc == 0 && i < slicing->spans.n; i++)
        rc = add_block(slicing, stored, &slicing->spans.data[i]);
    return rc;
}

/* Takes the part of the present box of the destination that a link gives. */
static int take_link(struct slicing *slicing, const struct rfs_rules_link *link)
{
    const struct rfs_by_rules *converted = slicing->converted;
    const struct rfs_rules_map *map = converted->map;
    const struct rfs_target *target = &converted->plan->params->targets[link->source];
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
    slicing->source_ndim = rfs_catalog_type(converted->config.catalog, target->type)->ndim;
    int rc = rfs_rules_spans_in(map, link, RFS_MADE, slicing->made_ndim, slicing->cells.lo,
                                slicing->cells.hi, NULL, &spans);
    for (size_t i = 0; rc == 0 && i < spans.n; i++) {
        slicing->span = spans.data + i;
        rfs_rules_span_box(map, link, RFS_SOURCE, slicing->source_ndim, slicing->span, lo, hi);
        rc = rfs_plan_stored(converted->config.whole, target, lo, hi, take_stored, slicing);
    }
    free(spans.data);
    return rc;
}

/* All boxes of a local rank of the destination. */
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
            rc = take_link(slicing, &slicing->converted->map->links.data[made->links + i]);
    } while (rc == 0 && rfs_cells_next(geometry, cells, cell));
    return rc;
}

/* SLICING has its slice, and the function that is called for each piece. */
static int take_target(struct slicing *slicing, struct rfs_planner *planner, uint32_t local,
                       const struct rfs_target *target)
{
    const struct rfs_by_rules *converted = planner->config.converted;
    const struct rfs_rules_made *made = rfs_by_rules_made(converted, target->name);
    const bool cut = target->geometry != RFS_NO_ID;
    struct rfs_geometry whole;
    struct rfs_use use;
    uint32_t lost;
    int rc = 0;

    if (!made || rfs_by_rules_needs_lost(converted, target->name, &lost))
        return -EIO;
    slicing->converted = converted;
    slicing->item = rfs_dtype_bytes((enum rfs_dtype)made->type.dtype);
    slicing->made_ndim = made->type.ndim;
    if (!cut)
        rc = rfs_geometry_resolve(&made->type, NULL, NULL, NULL, NULL, made->name, &whole, NULL);
    if (rc)
        return rc;
    rfs_catalog_begin(converted->config.catalog, &use);
    rc = take_boxes(slicing, cut ? rfs_plan_geometry_at(planner, target->geometry) : &whole,
                    cut ? local : 0, made);
    rfs_catalog_end(converted->config.catalog, &use);
    free(slicing->spans.data);
    return rc;
}

bool rfs_by_rules_is_compared(const struct rfs_by_rules *converted, uint32_t name)
{
    const struct rfs_rules_made *made = rfs_by_rules_made(converted, name);

    return made && made->compared;
}

int rfs_plan_converted_slice(struct rfs_planner *planner, uint32_t local,
                             const struct rfs_target *target, struct rfs_slice *slice)
{
    const struct rfs_by_rules *converted = planner->config.converted;
    struct slicing slicing = {.slice = slice};
    int rc = rfs_by_rules_is_compared(converted, target->name)
                 ? converted->config.compare(converted->config.ctx)
                 : 0;

    if (rc == 0)
        rc = take_target(&slicing, planner, local, target);

    if (rc == 0 && slice->n > 1)
        RFS_SORT(slice->blocks, slice->n, rfs_block_by_destination);
    return rc;
}

int rfs_planner_converted_walk(struct rfs_planner *planner, uint32_t rank,
                               const struct rfs_target *target, rfs_by_rules_fn *each, void *ctx)
{
    struct rfs_slice slice = {0};
    struct slicing slicing = {.slice = &slice, .each = each, .ctx = ctx};
    const int rc = take_target(&slicing, planner, rank % planner->scale.dst_devices, target);

    rfs_slice_free(&slice);
    return rc;
}

int rfs_plan_converted_attributes(struct planning *planning, struct rfs_rank_plan *plan)
{
    const struct rfs_rank_plan *whole = planning->planner->config.converted->plan;
    const struct rfs_params *params = plan->params;

    *plan = *whole;
    plan->params = params;
    plan->sources = malloc((whole->n_sources + 1) * sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(planning->err);
    memcpy(plan->sources, whole->sources, whole->n_sources * sizeof *plan->sources);
    return 0;
}
