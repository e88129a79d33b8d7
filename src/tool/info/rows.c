/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/info/rows.h"

#include "base/order.h"
#include "tool/common/whole.h"

#include <strings.h>

void rfs_rows_free(struct rfs_rows *rows)
{
    free(rows->list.data);
    rfs_arena_free(&rows->arena);
    *rows = (struct rfs_rows){0};
}

static bool is_taken(const struct rfs_filter *filter, const struct rfs_row *row)
{
    return rfs_globs_take(filter->globs, row->name) &&
           (filter->dtype < 0 || (row->type->kind != RFS_MAP && row->type->dtype == filter->dtype));
}

bool rfs_rows_add(struct rfs_rows *rows, const struct rfs_filter *filter, struct rfs_row row)
{
    const size_t dtype = row.type->kind == RFS_MAP ? RFS_DTYPE_COUNT : row.type->dtype;

    rows->n++;
    rows->bytes += row.bytes;
    rows->counts[dtype]++;
    rows->content[dtype] += row.bytes;
    return !is_taken(filter, &row) || RFS_PUSH(&rows->list, row);
}

RFS_COMPARE(by_size, struct rfs_row, x, y,
            RFS_ORDER(y->bytes, x->bytes) ?: strcmp(x->name, y->name))

RFS_COMPARE(by_name, struct rfs_row, x, y, strcmp(x->name, y->name))
RFS_COMPARE(by_offset, struct rfs_row, x, y,
            RFS_ORDER(x->offset, y->offset) ?: strcmp(x->name, y->name))

void rfs_rows_order(struct rfs_rows *rows, const struct rfs_filter *filter)
{
    if (filter->order != RFS_BY_FILE)
        RFS_SORT_ALL(&rows->list, filter->order == RFS_BY_SIZE   ? by_size
                                  : filter->order == RFS_BY_NAME ? by_name
                                                                 : by_offset);
    if (rows->list.n > filter->most)
        rows->list.n = filter->most;
}

bool rfs_rows_keep(struct rfs_rows *rows, const struct rfs_filter *filter, const char *name,
                   const struct rfs_type *type, uint64_t offset)
{
    struct rfs_type *kept = rfs_arena_alloc(&rows->arena, sizeof *kept);
    const struct rfs_row row = {.name = rfs_arena_text(&rows->arena, name, strlen(name)),
                                .type = kept,
                                .bytes = type->bytes,
                                .offset = offset};

    if (!kept || !row.name)
        return false;
    *kept = *type;
    return rfs_rows_add(rows, filter, row);
}

void rfs_rows_table(const struct rfs_rows *rows, bool offsets, struct rfs_table *table)
{
    static const struct rfs_column columns[] = {
        {"name", RFS_CELL_TEXT},    {"dtype", RFS_CELL_TEXT},    {"shape", RFS_CELL_JSON},
        {"bytes", RFS_CELL_NUMBER}, {"offset", RFS_CELL_NUMBER},
    };

    RFS_TABLE_DESCRIBE(table, columns);
    table->n_columns -= !offsets;
    for (size_t i = 0; i < rows->list.n; i++) {
        const struct rfs_row *row = &rows->list.data[i];
        rfs_table_text(table, row->name);
        rfs_table_text(table, rfs_whole_dtype(row->type));
        rfs_table_dims(table, row->type->ndim, row->type->dims);
        rfs_table_u64(table, row->type->bytes);
        if (offsets)
            rfs_table_u64(table, row->offset);
    }
}

bool rfs_rows_parse_dtype(const char *text, int *dtype)
{
    for (int i = 0; i < RFS_DTYPE_COUNT; i++)
        if (strcasecmp(text, rfs_dtype_name((enum rfs_dtype)i)) == 0) {
            *dtype = i;
            return true;
        }
    for (int i = 0; i < RFS_DTYPE_COUNT; i++) {
        const char *name = i == RFS_INT4 ? NULL : rfs_dtype_safetensors((enum rfs_dtype)i);
        if (name && strcasecmp(text, name) == 0) {
            *dtype = i;
            return true;
        }
    }
    return false;
}
