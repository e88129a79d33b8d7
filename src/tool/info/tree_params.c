/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a tree over all ranks. */
#include "tool/info/tree.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "tool/common/layout_text.h"
#include "tool/common/whole.h"

static const struct rfs_column slice_columns[] = {
    {"name", RFS_CELL_TEXT},  {"dtype", RFS_CELL_TEXT},   {"slice", RFS_CELL_JSON},
    {"ranks", RFS_CELL_TEXT}, {"bytes", RFS_CELL_NUMBER},
};
static const struct rfs_column whole_columns[] = {
    {"name", RFS_CELL_TEXT},
    {"dtype", RFS_CELL_TEXT},
    {"shape", RFS_CELL_JSON},
    {"cut", RFS_CELL_TEXT},
    {"slice", RFS_CELL_JSON},
    {"ranks", RFS_CELL_TEXT},
    {"bytes", RFS_CELL_NUMBER},
    {"devices", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"map", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"optimizer_shard", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"replicas", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"stages", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
};

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

/* The bytes of the whole tensor, or over all ranks where no strategy gives it. */
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

static void add_ranks(struct rfs_info_tree *tree, struct rfs_table *table,
                      const struct rfs_row *row)
{
    const struct rfs_headers *headers = &tree->headers;
    RFS_FREE bool *has = rfs_printed_memory(calloc(headers->kinds.n + 1, sizeof *has));
    RFS_FREE uint32_t *list = rfs_printed_memory(calloc((size_t)headers->n + 1, sizeof *list));
    uint32_t readable = 0;
    size_t n = 0;

    for (size_t k = 0; k < headers->kinds.n; k++) {
        has[k] = rfs_index_find(headers->kinds.data[k].index, row->id) != NULL;
        readable += headers->kinds.data[k].ranks;
    }
    if (tree->params[row->id].ranks == readable) {
        rfs_table_text(table, "all");
        return;
    }
    for (uint32_t i = 0; i < headers->n; i++)
        if (headers->ranks[i].kind != RFS_NO_KIND && has[headers->ranks[i].kind])
            list[n++] = headers->ranks[i].rank;
    rfs_text_ranks(rfs_table_cell(table), list, n);
    rfs_table_cell_end(table);
}

static void add_slice(struct rfs_info_tree *tree, struct rfs_table *table,
                      const struct rfs_row *row)
{
    const struct rfs_info_param *param = &tree->params[row->id];

    if (param->shapes)
        rfs_table_none(table, "differs");
    else
        rfs_table_dims(table, param->type->ndim, param->type->dims);
}

/* ---- with a strategy ---- */

static void add_stages(struct rfs_info_tree *tree, struct rfs_table *table, ptrdiff_t at)
{
    FILE *out = rfs_table_cell(table);
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
    rfs_table_cell_end(table);
}

static void add_whole(struct rfs_info_tree *tree, const struct rfs_row *row)
{
    struct rfs_table *table = &tree->report->table;
    struct rfs_fit_tensor tensor = {.slice = NULL};
    ptrdiff_t at;
    const int rc = find_tensor(tree, row->name, &at, &tensor);

    rfs_table_text(table, row->name);
    rfs_table_text(table, rfs_whole_dtype(row->type));
    if (rc == 1) {
        rfs_table_dims(table, tensor.slice->ndim, tensor.whole);
        rfs_put_cuts(rfs_table_cell(table), &tensor.grid);
        rfs_table_cell_end(table);
    } else {
        rfs_table_none(table, "?");
        rfs_table_text(table, rc < 0 ? "does not fit" : "not in the strategy");
    }
    add_slice(tree, table, row);
    add_ranks(tree, table, row);
    rfs_table_u64(table, row->bytes);
    if (rc == 1) {
        rfs_table_layout(table, tensor.layout);
        rfs_table_u64(table, tensor.grid.replicas);
    } else {
        for (int i = 0; i < 4; i++)
            rfs_table_none(table, "");
    }
    add_stages(tree, table, at);
}

void rfs_info_tree_params(struct rfs_info_tree *tree)
{
    struct rfs_table *table = &tree->report->table;

    if (tree->strategy)
        RFS_TABLE_DESCRIBE(table, whole_columns);
    else
        RFS_TABLE_DESCRIBE(table, slice_columns);
    tree->report->key = "tensors";
    for (size_t i = 0; i < tree->rows.list.n; i++) {
        const struct rfs_row *row = &tree->rows.list.data[i];
        if (tree->strategy) {
            add_whole(tree, row);
            continue;
        }
        rfs_table_text(table, row->name);
        rfs_table_text(table, tree->params[row->id].types ? "differs" : rfs_whole_dtype(row->type));
        add_slice(tree, table, row);
        add_ranks(tree, table, row);
        rfs_table_u64(table, row->bytes);
    }
}
