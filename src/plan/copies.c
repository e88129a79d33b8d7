/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/copies.h"

#include "base/order.h"
#include "plan/boxed.h"

/* ---- other stages ---------------------------------------------------------------------------- */

/*
 * The index of a rank, or NULL when it has none that can be read. The caller has begun a use of the
 * catalogue.
 */
static const struct rfs_index *index_of(struct rfs_planner *planner, uint32_t rank, uint32_t stage)
{
    struct rfs_catalog *catalog = planner->config.catalog;
    const struct rfs_lacking *lacking = planner->config.lacking;
    const struct rfs_index *index;

    if (rank >= rfs_catalog_ranks(catalog) || !rfs_catalog_has(catalog, rank) ||
        (lacking && rfs_lacking_file(lacking, rank)) ||
        rfs_catalog_index(catalog, rank, atomic_load(&planner->leads[stage]), &index, NULL))
        return NULL;
    return index;
}

/* The type id of the parameter in the first rank of a stage that has it, or RFS_NO_ID. */
static uint32_t type_in_stage(struct rfs_planner *planner, uint32_t name, uint32_t stage)
{
    const uint32_t base = rfs_plan_base(planner, stage);
    const struct rfs_entry *entry = NULL;
    struct rfs_use use;

    rfs_catalog_begin(planner->config.catalog, &use);
    for (uint32_t r = 0; !entry && r < planner->scale.src_devices; r++) {
        const struct rfs_index *index = index_of(planner, base + r, stage);
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

/* ---- replicas -------------------------------------------------------------------------------- */

/* Whether the copies are those of chunks. */
static bool has_boxes(const struct rfs_planner *planner)
{
    return !planner->config.converted && rfs_catalog_chunks(planner->config.catalog);
}

uint32_t rfs_planner_copies(struct rfs_planner *planner, const struct rfs_target *target)
{
    if (has_boxes(planner))
        return rfs_plan_chunked_copies(planner, target);
    return target->geometry == RFS_NO_ID
               ? planner->scale.src_devices
               : rfs_plan_geometry_at(planner, target->geometry)->src.replicas;
}

/*
 * Ascending numbers of those that hold a part, without the one that gives it: the one at COPY - 1.
 */
static uint32_t other_holder(const struct rfs_geometry *geometry, uint32_t provider, uint32_t copy)
{
    const uint32_t at = geometry ? rfs_grid_replica(&geometry->src, provider, copy - 1) : copy - 1;

    if (at < provider)
        return at;
    return geometry ? rfs_grid_replica(&geometry->src, provider, copy) : copy;
}

/* Where a slice's parts are taken from. */
struct taking {
    struct rfs_planner *planner;
    const struct rfs_target *target;
    const struct rfs_geometry *geometry; /* NULL: copied unsliced */
    struct provider_query provider_query;
    uint32_t copy;
    struct rfs_slice *slice;
    struct rfs_copy found;
};

static const struct rfs_entry *entry_of(const struct taking *taking, uint32_t rank,
                                        const struct rfs_index **index)
{
    *index = index_of(taking->planner, rank, taking->target->stage);
    return *index ? rfs_index_find(*index, taking->target->name) : NULL;
}

/* The global rank that this copy's part is of: the provider, unless another one has it. */
static uint32_t pick(struct taking *taking, uint32_t provider)
{
    const struct rfs_index *index;

    if (taking->copy == 0 || provider == RFS_NO_RANK)
        return provider;
    const uint32_t base = taking->provider_query.base;
    const uint32_t other = base + other_holder(taking->geometry, provider - base, taking->copy);
    const struct rfs_entry *entry = entry_of(taking, other, &index);
    if (!entry)
        return provider;
    const struct rfs_entry *given = entry_of(taking, provider, &index);
    if (given && given->type != entry->type) {
        taking->found.odd = other;
        return provider;
    }
    const struct rfs_catalog *catalog = taking->planner->config.catalog;
    if (rfs_catalog_file(catalog, other) == rfs_catalog_file(catalog, provider))
        return provider; /* it stands in for that rank */
    taking->found.others++;
    return other;
}

/* Adds a block of a rank's content, whose strides (or NULL) last as long as the use of indexes. */
static int add_block(struct taking *taking, const struct piece *piece, struct rfs_block **out,
                     const uint64_t **strides)
{
    struct rfs_catalog *catalog = taking->planner->config.catalog;
    const uint32_t rank = pick(taking, rfs_plan_provider(&taking->provider_query, piece));
    const struct rfs_index *index;
    const int rc = rfs_catalog_index(
        catalog, rank, atomic_load(&taking->planner->leads[taking->target->stage]), &index, NULL);
    const struct rfs_entry *entry = rc ? NULL : rfs_index_find(index, taking->target->name);

    if (!entry)
        return rc ? rc : -EIO;
    *out = rfs_slice_add(taking->slice);
    if (!*out)
        return -ENOMEM;
    (*out)->file = rfs_catalog_entry_file(catalog, rank, index, entry);
    *strides = rfs_index_strides(index, entry);
    return rfs_catalog_content(catalog, index, entry, &(*out)->content);
}

static int copied_slice(struct taking *taking)
{
    struct rfs_catalog *catalog = taking->planner->config.catalog;
    const struct rfs_target *target = taking->target;
    const struct rfs_role_rules rules = rfs_plan_rules(taking->planner);
    const struct rfs_role_name name = rfs_plan_name(taking->planner, target->name);
    const struct rfs_layout *layout = rfs_role_source_layout(&rules, &name, target->stage);
    const struct piece piece = rfs_piece_slice(layout, taking->provider_query.template);
    struct rfs_block *block;
    const uint64_t *strides;
    const int rc = add_block(taking, &piece, &block, &strides);

    if (rc)
        return rc;
    rfs_block_whole(block, rfs_catalog_type(catalog, target->type), strides);
    return 0;
}

static int cut_slice(struct taking *taking, uint32_t local)
{
    const struct rfs_geometry *geometry = taking->geometry;
    struct rfs_cells cells;
    uint32_t cell[RFS_MAX_DIMS];

    rfs_geometry_cells(geometry, local, &cells, cell);
    do {
        const struct piece piece = rfs_piece_cell(geometry, cell);
        struct rfs_block *block;
        const uint64_t *strides;
        const int rc = add_block(taking, &piece, &block, &strides);
        if (rc)
            return rc;
        rfs_geometry_block(geometry, &cells, cell, strides, block);
    } while (rfs_cells_next(geometry, &cells, cell));
    RFS_SORT(taking->slice->blocks, taking->slice->n, rfs_block_by_destination);
    return 0;
}

int rfs_planner_copy(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                     uint32_t copy, struct rfs_slice *slice, struct rfs_copy *out)
{
    const uint32_t local = rank % planner->scale.dst_devices;
    struct taking taking = {
        .planner = planner,
        .target = target,
        .geometry =
            target->geometry == RFS_NO_ID ? NULL : rfs_plan_geometry_at(planner, target->geometry),
        .provider_query = rfs_plan_query_of(planner, local, target),
        .copy = copy,
        .slice = slice,
        .found = {.odd = RFS_NO_RANK},
    };
    struct rfs_use use;
    int rc = 0;

    slice->n = 0;
    slice->bytes = rfs_catalog_type(planner->config.catalog, target->type)->bytes;
    rfs_catalog_begin(planner->config.catalog, &use);
    if (slice->bytes > 0 && planner->config.converted)
        rc = rfs_plan_converted_slice(planner, local, target, slice);
    else if (slice->bytes > 0 && has_boxes(planner))
        rc = rfs_plan_chunked_slice(planner, local, target, copy, slice, &taking.found.others);
    else if (slice->bytes > 0)
        rc = taking.geometry ? cut_slice(&taking, local) : copied_slice(&taking);
    rfs_catalog_end(planner->config.catalog, &use);
    if (!rc)
        rfs_slice_name(slice);
    *out = taking.found;
    return rc;
}

int rfs_planner_slice(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                      struct rfs_slice *slice)
{
    struct rfs_copy found;

    return rfs_planner_copy(planner, rank, target, 0, slice, &found);
}

int rfs_planner_bad_copies(struct rfs_planner *planner, uint32_t rank,
                           const struct rfs_target *target, rfs_bad_copy_fn *each, void *ctx)
{
    if (!has_boxes(planner) || rfs_catalog_type(planner->config.catalog, target->type)->bytes == 0)
        return 0;
    return rfs_plan_chunked_bad_copies(planner, rank % planner->scale.dst_devices, target, each,
                                       ctx);
}
