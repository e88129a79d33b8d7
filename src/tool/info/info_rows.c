/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/info/info.h"

#include "base/order.h"
#include "tool/common/show.h"

void rfs_info_rows_free(struct rfs_info_rows *rows)
{
    free(rows->list.data);
    rfs_arena_free(&rows->arena);
    *rows = (struct rfs_info_rows){0};
}

/* Returns whether a filter lets a row pass. */
static bool is_taken(const struct rfs_info_filter *filter, const struct rfs_info_row *row)
{
    return rfs_globs_take(filter->globs, row->name) &&
           (filter->dtype < 0 || (row->type->kind != RFS_MAP && row->type->dtype == filter->dtype));
}

bool rfs_info_rows_add(struct rfs_info_rows *rows, const struct rfs_info_filter *filter,
                       struct rfs_info_row row)
{
    const size_t dtype = row.type->kind == RFS_MAP ? RFS_DTYPE_COUNT : row.type->dtype;

    rows->n++;
    rows->bytes += row.bytes;
    rows->counts[dtype]++;
    rows->content[dtype] += row.bytes;
    return !is_taken(filter, &row) || RFS_PUSH(&rows->list, row);
}

RFS_COMPARE(by_size, struct rfs_info_row, x, y,
            RFS_ORDER(y->bytes, x->bytes) ?: strcmp(x->name, y->name))

RFS_COMPARE(by_name, struct rfs_info_row, x, y, strcmp(x->name, y->name))
RFS_COMPARE(by_offset, struct rfs_info_row, x, y,
            RFS_ORDER(x->offset, y->offset) ?: strcmp(x->name, y->name))

void rfs_info_rows_order(struct rfs_info_rows *rows, const struct rfs_info_filter *filter)
{
    if (filter->order != RFS_INFO_BY_FILE)
        RFS_SORT_ALL(&rows->list, filter->order == RFS_INFO_BY_SIZE   ? by_size
                                  : filter->order == RFS_INFO_BY_NAME ? by_name
                                                                      : by_offset);
    if (rows->list.n > filter->most)
        rows->list.n = filter->most;
}

bool rfs_info_listing_add(void *ctx, const char *name, const struct rfs_type *type, uint64_t offset)
{
    struct rfs_info_listing *listing = ctx;
    struct rfs_info_rows *rows = &listing->rows;
    const struct rfs_info_row row = {name, type, type->bytes, offset, 0};
    const size_t before = rows->list.n;

    if (!rfs_info_rows_add(rows, listing->filter, row))
        return false;
    if (rows->list.n == before) /* counted, and not shown */
        return true;
    struct rfs_info_row *added = &rows->list.data[before];
    struct rfs_type *copy = rfs_arena_alloc(&rows->arena, sizeof *copy);
    added->name = rfs_arena_text(&rows->arena, name, strlen(name));
    added->type = copy;
    if (copy)
        *copy = *type;
    return copy && added->name;
}

bool rfs_info_listing_add_value(void *ctx, const struct rfs_format_value *value)
{
    struct rfs_info_listing *listing = ctx;
    struct rfs_format_value copy = *value;

    copy.name = rfs_arena_text(&listing->rows.arena, value->name, strlen(value->name));
    if (value->text)
        copy.text = rfs_arena_text(&listing->rows.arena, value->text, strlen(value->text));
    return copy.name && (copy.text || !value->text) && RFS_PUSH(&listing->values, copy);
}

RFS_CELL(put_offset, struct rfs_info_row, rfs_table_u64(table, row->offset))

void rfs_info_rows_table(const struct rfs_info_rows *rows, bool offsets, struct rfs_table *table)
{
    static const struct rfs_column columns[] = {
        {"name", RFS_CELL_TEXT, rfs_info_put_name},
        {"dtype", RFS_CELL_TEXT, rfs_info_put_dtype},
        {"shape", RFS_CELL_JSON, rfs_info_put_shape},
        {"bytes", RFS_CELL_NUMBER, rfs_info_put_bytes},
        {"offset", RFS_CELL_NUMBER, put_offset},
    };

    RFS_TABLE_DESCRIBE(table, columns);
    table->n_columns -= !offsets;
    for (size_t i = 0; i < rows->list.n; i++)
        rfs_table_row(table, &rows->list.data[i]);
}

/* ---- in words -------------------------------------------------------------------------------- */

void rfs_info_tell_types(struct rfs_info_report *report, const struct rfs_info_rows *rows)
{
    const char *comma = "";

    fputs("types:", report->say);
    rfs_json_array(&report->json, "dtypes", RFS_JSON_TIGHT);
    for (int i = 0; i < RFS_INFO_COUNTED; i++) {
        const char *name = i == RFS_DTYPE_COUNT ? "map" : rfs_dtype_name((enum rfs_dtype)i);
        char bytes[RFS_TEXT_AMOUNT];
        if (rows->counts[i] == 0)
            continue;
        fprintf(report->say, "%s %" PRIu64 " %s (%s)", comma, rows->counts[i], name,
                rfs_text_amount(rows->content[i], bytes));
        rfs_json_object(&report->json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_text(&report->json, "dtype", name);
        rfs_json_put_u64(&report->json, "parameters", rows->counts[i]);
        rfs_json_put_u64(&report->json, "bytes", rows->content[i]);
        rfs_json_end(&report->json);
        comma = ",";
    }
    fputs(*comma ? "\n" : " none\n", report->say);
    rfs_json_end(&report->json);
}

void rfs_info_tell_filter(struct rfs_info_report *report, const struct rfs_info_filter *filter,
                          const struct rfs_info_rows *rows)
{
    if (rows->list.n == rows->n)
        return;
    uint64_t bytes = 0;
    for (size_t i = 0; i < rows->list.n; i++)
        bytes += rows->list.data[i].bytes;
    fprintf(report->say, "shown: %zu of %zu parameters, %" PRIu64 " bytes%s\n", rows->list.n,
            rows->n, bytes, rows->list.n == filter->most ? " (-n)" : "");
    rfs_json_put_u64(&report->json, "shown", rows->list.n);
}
