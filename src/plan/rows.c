/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices of manual splits: those of one parameter have differing rows, so the strategy, not the
 * other ranks' slices, determines each.
 */
#include "plan/internal.h"

/* The same but for rows. */
static bool same_but_rows(const struct rfs_type *a, const struct rfs_type *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->ndim == b->ndim && a->ndim > 0 &&
           memcmp(a->dims + 1, b->dims + 1, (a->ndim - 1U) * sizeof *a->dims) == 0;
}

static int check_entry(const struct planning *planning, uint32_t s, uint32_t local,
                       const struct rfs_entry *entry)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    const struct stage_use *use = &planning->stages[s];
    const char *param = rfs_catalog_name(catalog, entry->name);
    const struct rfs_role role = rfs_plan_role(planning->planner, entry->name, s, planning->stage);

    if (role.kind != RFS_ROLE_SLICED || !role.shown || !role.src || !role.src->edge)
        return 0;
    const struct rfs_type *type = rfs_catalog_type(catalog, entry->type);
    const uint32_t first = planning->origins[entry->name].type;
    const uint64_t rows = rfs_layout_rows(role.src, local);
    if (!same_but_rows(type, rfs_catalog_type(catalog, first)))
        return rfs_plan_types_differ(planning, entry->name, use->base + local, use->lead);
    if (type->dims[0] == rows)
        return 0;
    return rfs_fail(planning->err, -EINVAL,
                    RFS_OF(rfs_plan_path(planning, use->base + local), param),
                    "the strategy that this checkpoint was saved under",
                    "is a slice of %llu rows, but the strategy's param_split_shape gives this rank "
                    "%llu",
                    (unsigned long long)type->dims[0], (unsigned long long)rows);
}

int rfs_plan_check_rows(struct planning *planning, uint32_t s)
{
    const struct rfs_planner *planner = planning->planner;
    const struct stage_use *use = &planning->stages[s];
    int rc = 0;

    if (!planner->config.src || !rfs_strategy_has_splits(planner->config.src) ||
        (use->differs && !use->presence))
        return 0;
    for (uint32_t local = 0; local < planner->scale.src_devices; local++) {
        if (!(use->wanted[local] & PROVIDES))
            continue;
        const struct rfs_index *index =
            rfs_catalog_ready(planner->config.catalog, use->base + local);
        for (size_t i = 0; !rc && i < index->n; i++)
            if (planning->origins[index->entries[i].name].stage == s)
                rc = check_entry(planning, s, local, &index->entries[i]);
    }
    return rc;
}
