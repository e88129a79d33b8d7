/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the files of a source stage are of one size. Slices of a tensor are, so files of one save
 * that list the same parameters are too, as a rule; where they are not, they may list different
 * ones. That costs a stat for each rank, once, and finds removed redundancy before anything is
 * read. (It proves nothing by itself: files of one size may list different parameters, and sizes
 * give no more than a hint.)
 */
#include "plan/internal.h"

#include "base/cancel.h"
#include "base/store.h"

#include <sys/stat.h>

enum { SIZES_UNKNOWN, SIZES_SAME, SIZES_DIFFER };

/*
 * The bytes of a rank's files. False when they cannot be examined: reading them reports the reason.
 */
static bool rank_bytes(struct rfs_catalog *catalog, uint32_t rank, uint64_t *bytes)
{
    struct rfs_files *files = rfs_catalog_files(catalog);

    *bytes = 0;
    for (uint32_t part = 0; part < rfs_catalog_parts(catalog, rank); part++) {
        const uint32_t id = rfs_catalog_file(catalog, rank) + part;
        struct stat st;
        int rc;
        if (rfs_files_leads_home(files, id))
            return false;
        do
            rc = rfs_cancelled() ? -EINTR : rfs_store_stat(rfs_files_path(files, id), &st);
        while (rc == -EINTR && !rfs_cancelled());
        if (rc != 0)
            return false;
        *bytes += (uint64_t)st.st_size;
    }
    return true;
}

struct looking {
    struct rfs_catalog *catalog;
    uint32_t base;
};

/* The store keeps the answer for the question that follows. */
static int look_at(void *ctx, size_t i)
{
    const struct looking *looking = ctx;
    uint64_t bytes;

    if (rfs_catalog_has(looking->catalog, looking->base + (uint32_t)i))
        rank_bytes(looking->catalog, looking->base + (uint32_t)i, &bytes);
    return 0;
}

bool rfs_plan_sizes_differ(struct rfs_planner *planner, uint32_t s)
{
    struct rfs_catalog *catalog = planner->config.catalog;
    const uint32_t base = rfs_plan_base(planner, s);
    const int known = atomic_load(&planner->sizes[s]);
    uint64_t first = 0;
    uint64_t bytes;
    bool any = false;
    bool differ = false;

    if (known != SIZES_UNKNOWN)
        return known == SIZES_DIFFER;
    if (rfs_pool_expects_waits(planner->config.pool))
        rfs_pool_for(planner->config.pool, planner->scale.src_devices, look_at,
                     &(struct looking){catalog, base});
    for (uint32_t rank = base; !differ && rank < base + planner->scale.src_devices; rank++) {
        if (!rfs_catalog_has(catalog, rank) || !rank_bytes(catalog, rank, &bytes))
            continue;
        differ = any && bytes != first;
        first = bytes;
        any = true;
    }
    if (!rfs_cancelled())
        atomic_store(&planner->sizes[s], differ ? SIZES_DIFFER : SIZES_SAME);
    return differ;
}
