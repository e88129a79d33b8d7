/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/slice.h"

#include "base/order.h"
#include "base/vec.h"
#include "plan/chunked.h"

#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

void rfs_slice_free(struct rfs_slice *slice)
{
    free(slice->blocks);
    *slice = (struct rfs_slice){0};
}

struct rfs_block *rfs_slice_add(struct rfs_slice *slice)
{
    if (slice->n == slice->cap &&
        !rfs_vec_grow((void **)&slice->blocks, &slice->cap, slice->n, sizeof *slice->blocks))
        return NULL;
    return &slice->blocks[slice->n++];
}

RFS_COMPARE(by_destination, struct rfs_block, x, y, RFS_ORDER(x->dst, y->dst))

void rfs_slice_sort(struct rfs_slice *slice)
{
    RFS_SORT(slice->blocks, slice->n, by_destination);
}

void rfs_slice_name(struct rfs_slice *slice)
{
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < slice->n; i++) {
        const struct rfs_block *block = &slice->blocks[i];
        const uint64_t words[] = {slice->bytes, block->file, block->content.offset, block->dst,
                                  block->src,   block->run,  block->n_loops};
        XXH3_128bits_update(&state, words, sizeof words);
        XXH3_128bits_update(&state, block->loop, block->n_loops * sizeof *block->loop);
    }
    const XXH128_hash_t hash = XXH3_128bits_digest(&state);
    slice->id[0] = hash.low64;
    slice->id[1] = hash.high64;
}

/*
 * Finds byte AT of the slice in a block. Destination strides are at least the extent of the inner
 * loops, so that at most one run holds a byte.
 */
static bool block_has(const struct rfs_block *block, uint64_t at, uint64_t *from, uint64_t *left)
{
    if (at < block->dst || at >= block->dst_end)
        return false;
    at -= block->dst;
    *from = block->src;
    for (uint32_t i = 0; i < block->n_loops; i++) {
        const struct rfs_loop *loop = &block->loop[i];
        const uint64_t step = at / loop->dst_stride;
        if (step >= loop->count)
            return false;
        at -= step * loop->dst_stride;
        *from += step * loop->src_stride;
    }
    *from += at;
    *left = block->run - at;
    return at < block->run;
}

const struct rfs_block *rfs_slice_find(const struct rfs_slice *slice, uint64_t at, uint64_t *from,
                                       uint64_t *left)
{
    for (size_t i = 0; i < slice->n; i++)
        if (block_has(&slice->blocks[i], at, from, left))
            return &slice->blocks[i];
    return NULL;
}

/* Appends a loop, or folds it into the one outside of it when the two step evenly on both sides. */
static void add_inner_loop(struct rfs_block *block, uint64_t count, uint64_t dst_stride,
                           uint64_t src_stride)
{
    if (block->n_loops > 0) {
        struct rfs_loop *outer = &block->loop[block->n_loops - 1];
        if (outer->dst_stride == count * dst_stride && outer->src_stride == count * src_stride) {
            *outer = (struct rfs_loop){outer->count * count, dst_stride, src_stride};
            return;
        }
    }
    block->loop[block->n_loops++] = (struct rfs_loop){count, dst_stride, src_stride};
}

void rfs_slice_block_box(struct rfs_block *block, uint32_t ndim, const uint64_t *len, uint64_t item,
                         const uint64_t *dst_stride, const uint64_t *src_stride)
{
    /* The run: the innermost axes up to and including the first that is not whole on both sides. */
    uint32_t inner = ndim;
    block->run = item;
    block->n_loops = 0;
    while (inner > 0 && (len[inner - 1] == 1 || (dst_stride[inner - 1] == block->run &&
                                                 src_stride[inner - 1] == block->run))) {
        inner--;
        block->run *= len[inner];
    }
    uint64_t last = block->dst + block->run;
    for (uint32_t i = 0; i < inner; i++) {
        last += (len[i] - 1) * dst_stride[i];
        if (len[i] > 1)
            add_inner_loop(block, len[i], dst_stride[i], src_stride[i]);
    }
    block->dst_end = last;
}

void rfs_slice_block_whole(struct rfs_block *block, const struct rfs_type *type,
                           const uint64_t *strides)
{
    const uint64_t item = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    uint64_t row_major[RFS_MAX_DIMS];
    uint64_t step = item;

    block->dst = 0;
    block->src = 0;
    block->run = type->bytes;
    block->dst_end = type->bytes;
    block->n_loops = 0;
    block->strided = strides != NULL;
    if (!strides)
        return;
    for (uint32_t i = type->ndim; i-- > 0; step *= type->dims[i])
        row_major[i] = step;
    rfs_slice_block_box(block, type->ndim, type->dims, item, row_major, strides);
}

/* ---- targets of other stages ----------------------------------------------------------------- */

/*
 * Returns the index of a rank, or NULL when it has none that can be read. Within a use of the
 * catalogue.
 */
static const struct rfs_index *index_of(struct rfs_planner *planner, uint32_t rank, uint32_t stage)
{
    struct rfs_catalog *catalog = planner->config.catalog;
    const struct rfs_lacking *lacking = planner->config.lacking;
    const struct rfs_index *index;

    if (rank >= rfs_catalog_ranks(catalog) || !rfs_catalog_has(catalog, rank) ||
        (lacking && rfs_lacking_file(lacking, rank)) ||
        rfs_catalog_index(catalog, rank, atomic_load(&planner->stages[stage].lead), &index, NULL))
        return NULL;
    return index;
}

/* Returns the type of a parameter in the first rank of a stage that has it, or RFS_NO_ID. */
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

/* ---- the slice of a target ------------------------------------------------------------------- */

/* Says whether slices are made of chunks. */
static bool has_chunks(const struct rfs_planner *planner)
{
    return !planner->config.by_rules && rfs_catalog_chunks(planner->config.catalog);
}

uint32_t rfs_planner_copies(struct rfs_planner *planner, const struct rfs_target *target)
{
    if (has_chunks(planner))
        return rfs_plan_chunked_copies(planner, target);
    return target->geometry == RFS_NO_ID
               ? planner->scale.src_devices
               : rfs_plan_geometry_at(planner, target->geometry)->src.replicas;
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

/* A slice while its blocks are found. */
struct copying {
    struct rfs_planner *planner;
    const struct rfs_target *target;
    const struct rfs_geometry *geometry; /* NULL: copied unsliced */
    struct rfs_provider_query query;
    uint32_t copy;
    struct rfs_slice *slice;
    struct rfs_copy found;
};

static const struct rfs_entry *entry_of(const struct copying *copying, uint32_t rank)
{
    const struct rfs_index *index = index_of(copying->planner, rank, copying->target->stage);

    return index ? rfs_index_find(index, copying->target->name) : NULL;
}

/* Returns the global rank that gives a piece of this copy: the provider, if no other has it. */
static uint32_t pick(struct copying *copying, uint32_t provider)
{
    if (copying->copy == 0 || provider == RFS_NO_RANK)
        return provider;
    const uint32_t base = copying->query.base;
    const uint32_t other = base + other_holder(copying->geometry, provider - base, copying->copy);
    const struct rfs_entry *entry = entry_of(copying, other);
    if (!entry)
        return provider;
    const struct rfs_entry *given = entry_of(copying, provider);
    if (given && given->type != entry->type) {
        copying->found.odd = other;
        return provider;
    }
    const struct rfs_catalog *catalog = copying->planner->config.catalog;
    if (rfs_catalog_file(catalog, other) == rfs_catalog_file(catalog, provider))
        return provider; /* its file stands in for the other rank's */
    copying->found.others++;
    return other;
}

/* Adds a block of a rank's content, whose strides (or NULL) last as long as the use of indexes. */
static int add_block(struct copying *copying, const struct rfs_plan_piece *piece,
                     struct rfs_block **out, const uint64_t **strides)
{
    struct rfs_catalog *catalog = copying->planner->config.catalog;
    const uint32_t rank = pick(copying, rfs_plan_provider(&copying->query, piece));
    const struct rfs_index *index;
    const struct rfs_entry *entry;
    const int rc =
        rfs_plan_find_entry(&copying->query, copying->target->stage, rank, &index, &entry);

    if (rc)
        return rc;
    *out = rfs_slice_add(copying->slice);
    if (!*out)
        return -ENOMEM;
    (*out)->file = rfs_catalog_entry_file(catalog, rank, index, entry);
    *strides = rfs_index_strides(index, entry);
    return rfs_catalog_content(catalog, index, entry, &(*out)->content);
}

static int copied_slice(struct copying *copying)
{
    struct rfs_catalog *catalog = copying->planner->config.catalog;
    const struct rfs_target *target = copying->target;
    const struct rfs_plan_piece piece = rfs_plan_piece_copied(&copying->query, target->stage);
    struct rfs_block *block;
    const uint64_t *strides;
    const int rc = add_block(copying, &piece, &block, &strides);

    if (rc)
        return rc;
    rfs_slice_block_whole(block, rfs_catalog_type(catalog, target->type), strides);
    return 0;
}

static int cut_slice(struct copying *copying, uint32_t local)
{
    const struct rfs_geometry *geometry = copying->geometry;
    struct rfs_cells cells;
    uint32_t cell[RFS_MAX_DIMS];

    rfs_geometry_cells(geometry, local, &cells, cell);
    do {
        const struct rfs_plan_piece piece = rfs_plan_piece_cell(geometry, cell);
        struct rfs_block *block;
        const uint64_t *strides;
        const int rc = add_block(copying, &piece, &block, &strides);
        if (rc)
            return rc;
        rfs_geometry_block(geometry, &cells, cell, strides, block);
    } while (rfs_geometry_cells_next(geometry, &cells, cell));
    rfs_slice_sort(copying->slice);
    return 0;
}

int rfs_planner_copy(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                     uint32_t copy, struct rfs_slice *slice, struct rfs_copy *out)
{
    const uint32_t local = rank % planner->scale.dst_devices;
    struct copying copying = {
        .planner = planner,
        .target = target,
        .geometry = rfs_planner_geometry(planner, target),
        .query = rfs_plan_query_of(planner, local, target),
        .copy = copy,
        .slice = slice,
        .found = {.odd = RFS_NO_RANK},
    };
    struct rfs_use use;
    int rc = 0;

    slice->n = 0;
    slice->bytes = rfs_catalog_type(planner->config.catalog, target->type)->bytes;
    rfs_catalog_begin(planner->config.catalog, &use);
    if (slice->bytes > 0 && planner->config.by_rules)
        rc = rfs_by_rules_slice(planner, local, target, slice);
    else if (slice->bytes > 0 && has_chunks(planner))
        rc = rfs_plan_chunked_slice(planner, local, target, copy, slice, &copying.found.others);
    else if (slice->bytes > 0)
        rc = copying.geometry ? cut_slice(&copying, local) : copied_slice(&copying);
    rfs_catalog_end(planner->config.catalog, &use);
    if (!rc)
        rfs_slice_name(slice);
    *out = copying.found;
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
    if (!has_chunks(planner) || rfs_catalog_type(planner->config.catalog, target->type)->bytes == 0)
        return 0;
    return rfs_plan_chunked_bad_copies(planner, rank % planner->scale.dst_devices, target, each,
                                       ctx);
}
