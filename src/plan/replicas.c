/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parameter without a layout is copied from one certain rank. When that rank is lost, or its file
 * does not have it, nothing says that another has the same value, so it is refused; but for
 *
 * - one element (global_step, learning_rate), which MindSpore keeps the same on all ranks: one that
 *   is the same, bit for bit, on all ranks of the stage that have it is taken from the lowest of
 *   them, and the log says so when a rank was lost. strict refuses that too.
 * - parameters of one rank alone, while others of the stage have files without them:
 *   remove_redundancy, which takes all ranks for replicas where a network has no layouts, made that
 *   rank the one that keeps them.
 */
#include "plan/internal.h"

#define ELEMENT_MOST 16 /* bytes of the largest element */

static int read_value(const struct planning *planning, uint32_t rank, uint32_t name, uint32_t type,
                      struct rfs_sample *value)
{
    const struct rfs_index *index = rfs_catalog_ready(planning->planner->config.catalog, rank);
    const struct rfs_entry *entry = index ? rfs_index_find(index, name) : NULL;

    if (!entry || entry->type != type)
        return -ENOENT;
    return rfs_plan_sample(planning, rank, index, entry, value);
}

bool rfs_plan_one_element(const struct rfs_type *type)
{
    return type->kind == RFS_TENSOR && type->bytes <= ELEMENT_MOST &&
           type->bytes == rfs_dtype_bytes((enum rfs_dtype)type->dtype);
}

/* 0 when all ranks that have it have the same value, -ENOENT when not, or another -errno. */
static int compare_values(struct planning *planning, const struct provider_query *provider_query,
                          uint32_t from, const struct rfs_entry *entry)
{
    struct rfs_sample value;
    struct rfs_sample other;
    int rc = read_value(planning, from, entry->name, entry->type, &value);

    for (uint32_t rank = 0; !rc && rank < planning->planner->scale.src_devices; rank++) {
        if (provider_query->base + rank == from || !rfs_plan_has(provider_query, rank))
            continue;
        rc = read_value(planning, provider_query->base + rank, entry->name, entry->type, &other);
        if (!rc && memcmp(value.data, other.data, value.n) != 0)
            rc = -ENOENT;
    }
    return rc;
}

static bool kept_by_one(const struct stage_use *use, uint32_t name)
{
    const struct rfs_presence_view *of =
        use->presence ? rfs_presence_of(use->presence, name) : NULL;
    return of && of->ranks == 1 && use->presence->present > 1;
}

int rfs_plan_check_replicas(struct planning *planning, const struct stage_use *use,
                            const struct rfs_entry *entry, uint32_t from)
{
    const struct rfs_planner_config *config = &planning->planner->config;
    const struct rfs_type *type = rfs_catalog_type(config->catalog, entry->type);
    const char *param = rfs_catalog_name(config->catalog, entry->name);
    const struct rfs_where where = RFS_OF(rfs_catalog_path(config->catalog), param);
    const struct provider_query provider_query = rfs_plan_query(planning, use, entry->name);
    const uint32_t template = use->base + planning->template;
    const bool lost = !rfs_catalog_has(config->catalog, template);
    int rc = -ENOENT;

    if (kept_by_one(use, entry->name))
        return 0;
    if (!config->strict && rfs_plan_one_element(type))
        rc = compare_values(planning, &provider_query, from, entry);
    if (rc == -ENOENT && lost)
        return rfs_fail(
            planning->err, rc, where, "the checkpoint of that rank",
            "has no layout and is copied from rank_%u, whose checkpoint is missing; the "
            "ranks that are left do not prove its value",
            template);
    if (rc == -ENOENT)
        return rfs_fail(
            planning->err, -EINVAL, where, "the checkpoints as they were saved",
            "has no layout and is copied from rank_%u, whose checkpoint does not have it; the "
            "ranks that have it do not prove its value",
            template);
    if (rc)
        return rfs_fail(planning->err, rc, where, NULL,
                        "cannot be compared over the ranks that are left: %s", strerror(-rc));
    if (lost)
        rfs_log_limited(
            config->log, RFS_WARNING,
            "parameter '%s': rank_%u is missing; the same value in all other ranks of its "
            "stage is used",
            param, template);
    return 0;
}
