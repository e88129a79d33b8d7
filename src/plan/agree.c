/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parameter without a layout (global_step, learning_rate) is copied from one certain rank. When that
 * rank is lost, nothing says that another has the same value, so the values themselves are asked: a
 * small one that is the same, byte for byte, in every rank of the stage that is left is taken from the
 * lowest of them; anything else is refused.
 */
#include "plan/internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AGREE_BYTES (UINT64_C(64) << 10)

static int read_value(struct planning *planning, uint32_t rank, uint32_t name, uint32_t type,
                      void *buf)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    const struct rfs_index *index = rfs_catalog_ready(catalog, rank);
    const struct rfs_entry *entry = index ? rfs_index_find(index, name) : NULL;
    struct rfs_reading reading;

    if (!entry || entry->type != type)
        return -ENOENT;
    int rc =
        rfs_reading_begin(rfs_catalog_files(catalog), rfs_catalog_file(catalog, rank), &reading);
    if (rc)
        return rc;
    rc = rfs_content_pread(&reading, index, entry, buf, rfs_catalog_type(catalog, type)->bytes, 0);
    const int ended = rfs_reading_end(&reading);
    return rc ? rc : ended;
}

int rfs_plan_agree(struct planning *planning, const struct stage_use *use,
                   const struct rfs_entry *entry)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    const uint64_t bytes = rfs_catalog_type(catalog, entry->type)->bytes;
    const char *param = rfs_catalog_name(catalog, entry->name);
    const uint32_t lost = use->base + planning->like;
    const uint32_t from =
        rfs_plan_copy_rank(planning->planner, (uint32_t)(use - planning->stages), planning->like);
    RFS_FREE char *value = bytes <= AGREE_BYTES ? malloc(bytes + 1) : NULL;
    RFS_FREE char *other = bytes <= AGREE_BYTES ? malloc(bytes + 1) : NULL;
    bool same = value && other;

    if (same && read_value(planning, from, entry->name, entry->type, value))
        same = false;
    for (uint32_t local = 0; same && local < planning->planner->scale.src_devices; local++)
        if (use->wanted[local] && use->base + local != from)
            same = !read_value(planning, use->base + local, entry->name, entry->type, other) &&
                   memcmp(value, other, bytes) == 0;
    if (!same)
        return rfs_fail(
            planning->err, -ENOENT, RFS_OF(rfs_catalog_path(catalog), param),
            "the checkpoint of that rank",
            "has no layout and is copied from rank_%u, whose checkpoint is missing; the "
            "ranks that are left do not prove its value",
            lost);
    rfs_log_limited(planning->planner->config.log, RFS_WARNING,
                    "parameter '%s': rank_%u is missing; the same value in all other ranks of its "
                    "stage is used",
                    param, lost);
    return 0;
}
