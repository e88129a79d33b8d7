/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a tree over all ranks. */
#include "tool/info/tree.h"

#include "base/cleanup.h"
#include "tool/common/layout_text.h"
#include "tool/common/whole.h"
#include "view/rules.h"

#include <inttypes.h>
#include <string.h>

static const struct rfs_column slice_columns[] = {
    {"name", false, false},  {"dtype", false, false}, {"slice", true, false},
    {"ranks", false, false}, {"bytes", true, true},
};
static const struct rfs_column whole_columns[] = {
    {"name", false, false},          {"dtype", false, false},  {"shape", true, false},
    {"cut", false, false},           {"slice", true, false},   {"ranks", false, false},
    {"bytes", true, true},           {"devices", true, false}, {"map", true, false},
    {"optimizer_shard", true, true}, {"replicas", true, true}, {"stages", true, false},
};
#define WHOLE_SHORT 7 /* of these, those for people */

/* ---- parameters ---- */

static void count_kind(struct rfs_info_tree *tree, const struct rfs_headers_kind *kind)
{
    for (size_t e = 0; e < kind->index->n; e++) {
        const struct rfs_entry *entry = &kind->index->entries[e];
        const struct rfs_type *type = rfs_catalog_type(tree->catalog, entry->type);
        struct rfs_info_param *param = &tree->params[entry->name];
        if (!param->type)
            param->type = type;
        param->ranks += kind->ranks;
        param->bytes += type->bytes * kind->ranks;
        param->types |= type->dtype != param->type->dtype || type->kind != param->type->kind;
        param->shapes |= type->ndim != param->type->ndim ||
                         memcmp(type->dims, param->type->dims, sizeof type->dims) != 0;
    }
}

/*
 * In the first stage that holds it. 1, 0 when the strategy does not have it, or -EINVAL: it does
 * not fit.
 */
static int find_tensor(struct rfs_info_tree *tree, const char *name, ptrdiff_t *at,
                       struct rfs_fit_tensor *tensor)
{
    struct rfs_error unused;

    *at = rfs_strategy_find(tree->strategy, name);
    for (uint32_t stage = 0; *at >= 0 && stage < tree->fit.stages; stage++) {
        const int rc = rfs_fit_tensor(&tree->fit, (size_t)*at, stage, tensor, &unused);
        if (rc)
            return rc;
    }
    return 0;
}

/* The bytes of the whole tensor, or over all ranks where no strategy tells it. */
static uint64_t bytes_of(struct rfs_info_tree *tree, uint32_t name)
{
    const struct rfs_info_param *param = &tree->params[name];
    struct rfs_fit_tensor tensor = {.slice = NULL};
    ptrdiff_t at;

    if (!tree->strategy ||
        find_tensor(tree, rfs_catalog_name(tree->catalog, name), &at, &tensor) != 1)
        return param->bytes;
    uint64_t bytes = rfs_dtype_bytes((enum rfs_dtype)tensor.slice->dtype);
    for (uint32_t i = 0; i < tensor.slice->ndim; i++)
        if (__builtin_mul_overflow(bytes, tensor.whole[i], &bytes))
            return UINT64_MAX;
    return bytes;
}

/* Rows in the order of the files. Those of a strategy are sorted by whole tensors. */
int rfs_info_tree_count(struct rfs_info_tree *tree)
{
    const uint32_t n = rfs_intern_count(rfs_catalog_tables(tree->catalog)->names);
    RFS_FREE bool *seen = calloc((size_t)n + 1, sizeof *seen);

    tree->params = calloc((size_t)n + 1, sizeof *tree->params);
    if (!seen || !tree->params)
        return rfs_fail_memory(tree->err);
    for (size_t k = 0; k < tree->headers.kinds.n; k++)
        count_kind(tree, &tree->headers.kinds.data[k]);
    for (size_t k = 0; k < tree->headers.kinds.n; k++) {
        const struct rfs_index *index = tree->headers.kinds.data[k].index;
        for (size_t e = 0; e < index->n; e++) {
            const struct rfs_entry *entry = &index->entries[e];
            const struct rfs_info_param *param = &tree->params[entry->name];
            if (seen[entry->name])
                continue;
            seen[entry->name] = true;
            const struct rfs_row row = {.name = rfs_catalog_name(tree->catalog, entry->name),
                                        .type = param->type,
                                        .bytes = bytes_of(tree, entry->name),
                                        .offset = entry->offset,
                                        .id = entry->name};
            if (!rfs_rows_add(&tree->rows, &tree->args->filter, row))
                return rfs_fail_memory(tree->err);
        }
    }
    rfs_rows_order(&tree->rows, &tree->args->filter);
    return 0;
}

/* "0-3,8": the ranks for which HAS is true. */
static void put_ranks(FILE *out, const struct rfs_headers *headers, const bool *has_kind)
{
    bool first = true;

    for (uint32_t i = 0; i < headers->n; i++) {
        uint32_t last = i;
        if (headers->ranks[i].kind == RFS_NO_KIND || !has_kind[headers->ranks[i].kind])
            continue;
        while (last + 1 < headers->n && headers->ranks[last + 1].kind != RFS_NO_KIND &&
               has_kind[headers->ranks[last + 1].kind] &&
               headers->ranks[last + 1].rank == headers->ranks[last].rank + 1)
            last++;
        fprintf(out, "%s%" PRIu32, first ? "" : ",", headers->ranks[i].rank);
        if (last > i)
            fprintf(out, "-%" PRIu32, headers->ranks[last].rank);
        first = false;
        i = last;
    }
}

static void add_ranks(struct rfs_info_tree *tree, struct rfs_table *table,
                      const struct rfs_row *row)
{
    const struct rfs_headers *headers = &tree->headers;
    uint32_t readable = 0;
    RFS_FREE bool *has = rfs_printed_memory(calloc(headers->kinds.n + 1, sizeof *has));
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    for (size_t k = 0; k < headers->kinds.n; k++) {
        has[k] = rfs_index_find(headers->kinds.data[k].index, row->id) != NULL;
        readable += headers->kinds.data[k].ranks;
    }
    if (tree->params[row->id].ranks == readable)
        fputs("all", out);
    else
        put_ranks(out, headers, has);
    rfs_table_add_printed(table, &shown);
}

static void add_slice(struct rfs_info_tree *tree, struct rfs_table *table,
                      const struct rfs_row *row)
{
    const struct rfs_info_param *param = &tree->params[row->id];

    if (param->shapes && tree->args->json)
        rfs_table_add(table, "null");
    else if (param->shapes)
        rfs_table_add(table, "differs");
    else
        rfs_table_add_dims(table, param->type->ndim, param->type->dims);
}

/* ---- with a strategy ---- */

static void add_stages(struct rfs_info_tree *tree, struct rfs_table *table, ptrdiff_t at)
{
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);
    const char *comma = "";

    fputc('[', out);
    for (uint32_t stage = at < 0 ? RFS_NO_STAGE
                                 : rfs_strategy_next_stage(tree->strategy, (size_t)at, 0);
         stage != RFS_NO_STAGE;
         stage = rfs_strategy_next_stage(tree->strategy, (size_t)at, stage + 1)) {
        fprintf(out, "%s%" PRIu32, comma, stage);
        comma = ", ";
    }
    fputc(']', out);
    rfs_table_add_printed(table, &shown);
}

static void add_whole(struct rfs_info_tree *tree, const struct rfs_row *row)
{
    struct rfs_table *table = &tree->report->table;
    struct rfs_fit_tensor tensor = {.slice = NULL};
    struct rfs_printed shown;
    ptrdiff_t at;
    const int rc = find_tensor(tree, row->name, &at, &tensor);

    rfs_table_add(table, "%s", row->name);
    rfs_table_add(table, "%s", rfs_whole_dtype(row->type));
    if (rc == 1) {
        rfs_table_add_dims(table, tensor.slice->ndim, tensor.whole);
        rfs_put_cuts(rfs_printed_begin(&shown), &tensor.grid);
        rfs_table_add_printed(table, &shown);
    } else {
        rfs_table_add(table, tree->args->json ? "null" : "?");
        rfs_table_add(table, "%s", rc < 0 ? "does not fit" : "not in the strategy");
    }
    add_slice(tree, table, row);
    add_ranks(tree, table, row);
    rfs_table_add(table, "%" PRIu64, row->bytes);
    if (!tree->args->json)
        return;
    if (rc == 1) {
        rfs_put_matrix(rfs_printed_begin(&shown), tensor.layout);
        rfs_table_add_printed(table, &shown);
        rfs_put_map(rfs_printed_begin(&shown), tensor.layout);
        rfs_table_add_printed(table, &shown);
        rfs_table_add(table, "%" PRIu32, tensor.layout->opt_size);
        rfs_table_add(table, "%" PRIu32, tensor.grid.replicas);
    } else {
        for (int i = 0; i < 4; i++)
            rfs_table_add(table, "null");
    }
    add_stages(tree, table, at);
}

void rfs_info_tree_params(struct rfs_info_tree *tree)
{
    struct rfs_table *table = &tree->report->table;

    table->columns = tree->strategy ? whole_columns : slice_columns;
    table->n_columns = !tree->strategy    ? sizeof slice_columns / sizeof *slice_columns
                       : tree->args->json ? sizeof whole_columns / sizeof *whole_columns
                                          : WHOLE_SHORT;
    tree->report->key = "tensors";
    for (size_t i = 0; i < tree->rows.list.n; i++) {
        const struct rfs_row *row = &tree->rows.list.data[i];
        if (tree->strategy) {
            add_whole(tree, row);
            continue;
        }
        rfs_table_add(table, "%s", row->name);
        rfs_table_add(table, "%s",
                      tree->params[row->id].types ? "differs" : rfs_whole_dtype(row->type));
        add_slice(tree, table, row);
        add_ranks(tree, table, row);
        rfs_table_add(table, "%" PRIu64, row->bytes);
    }
}
