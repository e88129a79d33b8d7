/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/whole_parts.h"

#include "base/order.h"
#include "view/hfai_view.h"

struct rfs_whole_parts {
    struct rfs_hfai_list list;
    struct rfs_params *params; /* owned; target I is tensor I of the list */
};

void rfs_whole_parts_free(struct rfs_whole_parts *parts)
{
    if (!parts)
        return;
    rfs_hfai_list_free(&parts->list);
    free(parts->params);
    free(parts);
}

static int make_params(struct rfs_whole_parts *parts, struct rfs_tables *tables,
                       struct rfs_error *err)
{
    const size_t n = parts->list.tensors.n;

    parts->params = calloc(1, sizeof *parts->params + (n + 1) * sizeof *parts->params->targets);
    if (!parts->params)
        return rfs_fail_memory(err);
    parts->params->n = n;
    for (size_t i = 0; i < n; i++) {
        const struct rfs_hfai_listed *tensor = &parts->list.tensors.data[i];
        struct rfs_target *target = &parts->params->targets[i];
        target->name = rfs_intern_add(tables->names, tensor->name, strlen(tensor->name));
        target->type = rfs_intern_add(tables->types, &tensor->type, sizeof tensor->type);
        if (target->name == RFS_NO_ID || target->type == RFS_NO_ID)
            return rfs_fail_memory(err);
        target->shown_name = target->name;
        target->shown_type = target->type;
    }
    return 0;
}

static int by_name(const void *x, const void *y)
{
    const struct rfs_hfai_value *a = x;
    const struct rfs_hfai_value *b = y;
    const int by = strcmp(a->name, b->name);

    return by ? by : memcmp(a->hash, b->hash, sizeof a->hash);
}

int rfs_whole_parts_open(struct rfs_view *view, struct rfs_whole_parts **out, struct rfs_error *err)
{
    struct rfs_whole_parts *parts = *out = calloc(1, sizeof *parts);
    const struct rfs_hfai_division *division;
    const struct rfs_hfai *hfai;

    if (!parts)
        return rfs_fail_memory(err);
    rfs_hfai_view_parts(view, &hfai, &division);
    int rc = rfs_hfai_list(hfai, &parts->list, err)
                 ?: make_params(parts, rfs_catalog_tables(view->catalog), err);
    if (rc) {
        rfs_whole_parts_free(parts);
        *out = NULL;
        return rc;
    }
    RFS_SORT_ALL(&parts->list.values, by_name);
    return 0;
}

const struct rfs_params *rfs_whole_parts_params(const struct rfs_whole_parts *parts)
{
    return parts->params;
}

size_t rfs_whole_parts_models(const struct rfs_whole_parts *parts)
{
    return parts->list.n_models;
}

int rfs_whole_parts_slice(const struct rfs_whole_parts *parts, const struct rfs_target *target,
                          struct rfs_slice *slice)
{
    return rfs_storages_slice(&parts->list.storages, (uint32_t)(target - parts->params->targets),
                              slice);
}

const struct rfs_hfai_value *rfs_whole_parts_values(const struct rfs_whole_parts *parts, size_t *n)
{
    *n = parts->list.values.n;
    return parts->list.values.data;
}
