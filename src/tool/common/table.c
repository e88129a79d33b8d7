/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/table.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "layout/grid.h"

#include <assert.h>
#include <math.h>

#define GAP 2

static bool is_shown(const struct rfs_table *table, const struct rfs_column *column)
{
    return !(column->cells & (table->json ? RFS_FOR_PEOPLE : RFS_FOR_SCRIPTS));
}

void rfs_table_text(struct rfs_table *table, const char *text)
{
    const struct rfs_column *column = &table->columns[table->at];

    table->at = (table->at + 1) % table->n_columns;
    if (!is_shown(table, column))
        return;
    RFS_FREE char *clean = rfs_printed_memory(rfs_text_printable_copy(text));
    const char *cell = rfs_printed_memory(rfs_arena_text(&table->arena, clean, strlen(clean)));
    if (!RFS_PUSH(&table->cells, cell))
        rfs_printed_memory(NULL);
}

void rfs_table_add(struct rfs_table *table, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    RFS_FREE char *text = rfs_text_vprintf(fmt, args);
    va_end(args);
    rfs_table_text(table, rfs_printed_memory(text));
}

void rfs_table_u64(struct rfs_table *table, uint64_t number)
{
    rfs_table_add(table, "%" PRIu64, number);
}

void rfs_table_real(struct rfs_table *table, int digits, double number)
{
    if (table->json && !isfinite(number))
        rfs_table_text(table, "null");
    else
        rfs_table_add(table, "%.*g", table->json ? 17 : digits, number);
}

void rfs_table_bool(struct rfs_table *table, bool value)
{
    rfs_table_text(table, value ? "true" : "false");
}

void rfs_table_dims(struct rfs_table *table, uint32_t ndim, const uint64_t *dims)
{
    char text[RFS_DIMS_TEXT(RFS_GRID_DIMS)];

    rfs_table_text(table, rfs_text_dims(text, sizeof text, ndim, dims));
}

void rfs_table_none(struct rfs_table *table, const char *for_people)
{
    rfs_table_text(table, table->json ? "null" : for_people);
}

FILE *rfs_table_cell(struct rfs_table *table)
{
    return rfs_printed_begin(&table->cell);
}

void rfs_table_cell_end(struct rfs_table *table)
{
    RFS_FREE char *text = rfs_printed_end(&table->cell);

    rfs_table_text(table, text);
}

/* The columns that are shown, in OUT; how many. */
static size_t list_shown(const struct rfs_table *table, const struct rfs_column **out)
{
    size_t n = 0;

    assert(table->n_columns <= RFS_TABLE_COLUMNS);
    for (size_t i = 0; i < table->n_columns; i++)
        if (is_shown(table, &table->columns[i]))
            out[n++] = &table->columns[i];
    return n;
}

/* A wider cell sticks out of its column, in its row alone: one long name must not pad all rows. */
#define WIDEST 128

/* *owed spaces stand before the next character, so that no line ends in spaces. */
static void print_cell(const struct rfs_column *column, size_t width, const char *text, int *owed,
                       FILE *out)
{
    const size_t have = rfs_text_width(text);
    const int pad = have < width ? (int)(width - have) : 0;
    const bool right = column->cells & RFS_CELL_NUMBER;

    if (right)
        *owed += pad;
    if (*text != '\0') {
        fprintf(out, "%*s%s", *owed, "", text);
        *owed = 0;
    }
    *owed += GAP + (right ? 0 : pad);
}

/* CELLS NULL: the headings. */
static void print_row(const struct rfs_column *const *columns, size_t n, const size_t *widths,
                      const char *const *cells, FILE *out)
{
    int owed = 0;

    for (size_t i = 0; i < n; i++)
        print_cell(columns[i], widths[i], cells ? cells[i] : columns[i]->title, &owed, out);
    fputc('\n', out);
}

void rfs_table_print(const struct rfs_table *table, FILE *out)
{
    const struct rfs_column *columns[RFS_TABLE_COLUMNS];
    size_t widths[RFS_TABLE_COLUMNS] = {0};
    const size_t n = list_shown(table, columns);

    for (size_t i = 0; i < n; i++)
        widths[i] = strlen(columns[i]->title);
    for (size_t i = 0; i < table->cells.n; i++) {
        const size_t width = rfs_text_width(table->cells.data[i]);
        if (width > widths[i % n])
            widths[i % n] = width < WIDEST ? width : WIDEST;
    }
    print_row(columns, n, widths, NULL, out);
    for (size_t row = 0; row + n <= table->cells.n; row += n)
        print_row(columns, n, widths, table->cells.data + row, out);
}

static void set_key(const struct rfs_column *column, char out[64])
{
    snprintf(out, 64, "%s", column->title);
    for (char *space; (space = strchr(out, ' '));)
        *space = '_';
}

void rfs_table_put_json(const struct rfs_table *table, struct rfs_json_write *json, const char *key)
{
    const struct rfs_column *columns[RFS_TABLE_COLUMNS];
    const size_t n = list_shown(table, columns);

    rfs_json_array(json, key, RFS_JSON_ROWS);
    for (size_t i = 0; i < table->cells.n; i++) {
        const struct rfs_column *column = columns[i % n];
        if (i % n == 0)
            rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        char name[64];
        set_key(column, name);
        if (column->cells & (RFS_CELL_NUMBER | RFS_CELL_JSON))
            rfs_json_print(json, name, "%s", table->cells.data[i]);
        else
            rfs_json_put_text(json, name, table->cells.data[i]);
        if (i % n + 1 == n)
            rfs_json_end(json);
    }
    rfs_json_end(json);
}

void rfs_table_free(struct rfs_table *table)
{
    free(table->cells.data);
    rfs_arena_free(&table->arena);
    *table = (struct rfs_table){0};
}
