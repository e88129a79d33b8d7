/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parameter without a layout is copied from one certain rank. When that rank is lost, nothing says
 * that another has the same value, so it is refused; but for one element (global_step, learning_rate),
 * which MindSpore keeps the same on all ranks: one that all ranks of the stage that are left agree on, bit
 * for bit, is taken from the lowest of them, and the log says so. strict refuses that too.
 */
#include "plan/internal.h"

#include <errno.h>
#include <string.h>

#define ELEMENT_MOST 16 /* bytes of the largest element */

static int read_value(struct planning *planning, uint32_t rank, uint32_t name, uint32_t type,
                      void *buf)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    const struct rfs_index *index = rfs_catalog_ready(catalog, rank);
    const struct rfs_entry *entry = index ? rfs_index_find(index, name) : NULL;
    struct rfs_reading reading;

    if (!entry || entry->type != type)
        return -ENOENT;
    int rc = rfs_reading_begin(rfs_catalog_files(catalog),
                               rfs_catalog_entry_file(catalog, rank, index, entry), &reading);
    if (rc)
        return rc;
    rc = rfs_content_pread(&reading, index, entry, buf, rfs_catalog_type(catalog, type)->bytes, 0);
    const int ended = rfs_reading_end(&reading);
    return rc ? rc : ended;
}

bool rfs_plan_one_element(const struct rfs_type *type)
{
    return type->kind == RFS_TENSOR && type->bytes <= ELEMENT_MOST &&
           type->bytes == rfs_dtype_bytes((enum rfs_dtype)type->dtype);
}

/* 0 when all ranks that are left agree on the value, -ENOENT when not, or another -errno. */
static int compare_values(struct planning *planning, const struct stage_use *use, uint32_t from,
                          const struct rfs_entry *entry, uint64_t bytes)
{
    unsigned char value[ELEMENT_MOST];
    unsigned char other[ELEMENT_MOST];
    int rc = read_value(planning, from, entry->name, entry->type, value);

    for (uint32_t local = 0; !rc && local < planning->planner->scale.src_devices; local++) {
        if (!use->wanted[local] || use->base + local == from)
            continue;
        rc = read_value(planning, use->base + local, entry->name, entry->type, other);
        if (!rc && memcmp(value, other, bytes) != 0)
            rc = -ENOENT;
    }
    return rc;
}

int rfs_plan_agree(struct planning *planning, const struct stage_use *use,
                   const struct rfs_entry *entry)
{
    const struct rfs_planner_config *config = &planning->planner->config;
    const struct rfs_type *type = rfs_catalog_type(config->catalog, entry->type);
    const char *param = rfs_catalog_name(config->catalog, entry->name);
    const struct rfs_where where = RFS_OF(rfs_catalog_path(config->catalog), param);
    const uint32_t lost = use->base + planning->like;
    const uint32_t from =
        rfs_plan_copy_rank(planning->planner, (uint32_t)(use - planning->stages), planning->like);
    int rc = -ENOENT;

    if (!config->strict && rfs_plan_one_element(type))
        rc = compare_values(planning, use, from, entry, type->bytes);
    if (rc == -ENOENT)
        return rfs_fail(
            planning->err, rc, where, "the checkpoint of that rank",
            "has no layout and is copied from rank_%u, whose checkpoint is missing; the "
            "ranks that are left do not prove its value",
            lost);
    if (rc)
        return rfs_fail(planning->err, rc, where, NULL,
                        "cannot be compared over the ranks that are left: %s", strerror(-rc));
    rfs_log_limited(config->log, RFS_WARNING,
                    "parameter '%s': rank_%u is missing; the same value in all other ranks of its "
                    "stage is used",
                    param, lost);
    return 0;
}
