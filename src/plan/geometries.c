/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's table of geometries. */
#include "plan/internal.h"

#include "base/checked.h"
#include "base/cleanup.h"

#include <xxhash.h>

static size_t hash_key(const struct geometry_slot *key)
{
    const uint64_t words[3] = {(uintptr_t)key->src, (uintptr_t)key->dst, key->type};
    return XXH3_64bits(words, sizeof words);
}

/* The slot of the table that holds KEY or would; the table is never full. */
static uint32_t *probe(const struct rfs_planner *planner, const struct geometry_slot *key)
{
    const size_t mask = planner->geometry_cap - 1;
    size_t at = hash_key(key) & mask;

    for (;; at = (at + 1) & mask) {
        uint32_t *cell = &planner->geometry_table[at];
        if (*cell == 0)
            return cell;
        const struct geometry_slot *have = &planner->geometries.data[*cell - 1];
        if (have->src == key->src && have->dst == key->dst && have->type == key->type)
            return cell;
    }
}

static uint32_t find_key(const struct rfs_planner *planner, const struct geometry_slot *key)
{
    return planner->geometry_cap ? *probe(planner, key) - 1 : RFS_NO_ID;
}

static bool grow_table(struct rfs_planner *planner)
{
    const size_t cap = planner->geometry_cap ? planner->geometry_cap * 2 : 64;
    uint32_t *table = calloc(cap, sizeof *table);
    if (!table)
        return false;
    free(planner->geometry_table);
    planner->geometry_table = table;
    planner->geometry_cap = cap;
    for (size_t i = 0; i < planner->geometries.n; i++)
        *probe(planner, &planner->geometries.data[i]) = (uint32_t)i + 1;
    return true;
}

static uint32_t insert_key(struct rfs_planner *planner, const struct geometry_slot *key)
{
    const size_t n = planner->geometries.n;
    if ((n + 1) * 2 > planner->geometry_cap && !grow_table(planner))
        return RFS_NO_ID;
    uint32_t *cell = probe(planner, key);
    if (!RFS_PUSH(&planner->geometries, *key))
        return RFS_NO_ID;
    *cell = (uint32_t)n + 1;
    return (uint32_t)n;
}

static uint32_t add_type(struct rfs_planner *planner, const struct rfs_geometry *geometry,
                         const uint64_t *dims)
{
    struct rfs_type type = {.bytes = geometry->item,
                            .ndim = (uint8_t)geometry->ndim,
                            .dtype = geometry->dtype,
                            .kind = RFS_TENSOR};

    for (uint32_t i = 0; i < geometry->ndim; i++) {
        type.dims[i] = dims[i];
        type.bytes *= dims[i];
    }
    return rfs_intern_add(rfs_catalog_tables(planner->config.catalog)->types, &type, sizeof type);
}

static int resolve(struct rfs_planner *planner, const struct geometry_slot *key, const char *param,
                   struct rfs_geometry *out, struct rfs_error *err)
{
    const struct rfs_planner_config *config = &planner->config;
    const struct rfs_type *slice = rfs_catalog_type(config->catalog, key->type);
    const char *src_name = config->src ? rfs_strategy_name(config->src) : NULL;
    const char *dst_name = config->dst ? rfs_strategy_name(config->dst) : NULL;
    const int rc =
        rfs_geometry_resolve(slice, key->src, key->dst, src_name, dst_name, param, out, err);
    if (rc)
        return rc;

    out->dtype = slice->dtype;
    out->dst_type = add_type(planner, out, out->dst_dims);
    return out->dst_type == RFS_NO_ID ? rfs_fail_memory(err) : 0;
}

int rfs_plan_target_type(struct rfs_planner *planner, const struct rfs_geometry *geometry,
                         uint32_t local, uint32_t *type)
{
    uint64_t dims[RFS_MAX_DIMS];

    *type = geometry->dst_type;
    if (!geometry->dst.edge)
        return 0;
    rfs_grid_slice(&geometry->dst, geometry->whole, local, dims);
    *type = add_type(planner, geometry, dims);
    return *type == RFS_NO_ID ? -ENOMEM : 0;
}

/*
 * Slices of a manual split differ in their rows, and make one geometry all the same: gives the type
 * of the first one's, or TYPE itself when it is no slice of the split, which is refused then.
 */
static uint32_t first_slice(struct rfs_planner *planner, const struct rfs_layout *layout,
                            uint32_t type)
{
    struct rfs_type slice = *rfs_catalog_type(planner->config.catalog, type);
    bool known = false;

    for (uint32_t k = 0; slice.ndim > 0 && !known && k + 1 < layout->n_edges; k++)
        known = layout->edge[k + 1] - layout->edge[k] == slice.dims[0];
    if (!known || !rfs_mul_u64(slice.bytes / slice.dims[0], layout->edge[1], &slice.bytes))
        return type;
    slice.dims[0] = layout->edge[1];
    return rfs_intern_add(rfs_catalog_tables(planner->config.catalog)->types, &slice, sizeof slice);
}

int rfs_plan_geometry(struct rfs_planner *planner, const struct rfs_role *role, uint32_t type,
                      uint32_t name, uint32_t *id, struct rfs_error *err)
{
    struct geometry_slot key = {role->src, role->dst, type, NULL};

    if (role->src && role->src->edge)
        key.type = first_slice(planner, role->src, type);
    *id = RFS_NO_ID;
    if (key.type == RFS_NO_ID)
        return rfs_fail_memory(err);
    pthread_mutex_lock(&planner->lock);
    *id = find_key(planner, &key);
    pthread_mutex_unlock(&planner->lock);
    if (*id != RFS_NO_ID)
        return 0;

    RFS_FREE struct rfs_geometry *fresh = malloc(sizeof *fresh);
    if (!fresh)
        return rfs_fail_memory(err);
    const int rc =
        resolve(planner, &key, rfs_catalog_name(planner->config.catalog, name), fresh, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&planner->lock);
    *id = find_key(planner, &key); /* another thread may have been faster */
    if (*id == RFS_NO_ID) {
        key.geometry = fresh;
        *id = insert_key(planner, &key);
        if (*id != RFS_NO_ID)
            fresh = NULL;
    }
    pthread_mutex_unlock(&planner->lock);
    return *id == RFS_NO_ID ? rfs_fail_memory(err) : 0;
}

const struct rfs_geometry *rfs_plan_geometry_at(struct rfs_planner *planner, uint32_t id)
{
    pthread_mutex_lock(&planner->lock);
    const struct rfs_geometry *geometry = planner->geometries.data[id].geometry;
    pthread_mutex_unlock(&planner->lock);
    return geometry;
}
