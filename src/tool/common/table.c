/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/table.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "tool/common/layout_text.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

#define GAP 2

/* malloc'ed, or NULL. */
static char *printable(const char *text)
{
    const size_t cap = strlen(text) * 4 + 1;
    char *out = malloc(cap);
    if (out != NULL)
        rfs_text_printable(out, cap, text);
    return out;
}

void rfs_table_add(struct rfs_table *table, const char *fmt, ...)
{
    char *raw = NULL;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&raw, fmt, args) < 0)
        raw = NULL;
    va_end(args);
    RFS_FREE char *clean = raw == NULL ? NULL : printable(raw);
    free(raw);
    const char *cell = clean == NULL ? NULL : rfs_arena_text(&table->arena, clean, strlen(clean));
    if (cell == NULL || !RFS_PUSH(&table->cells, cell))
        rfs_printed_memory(NULL);
}

void rfs_table_add_printed(struct rfs_table *table, struct rfs_printed *shown)
{
    RFS_FREE char *text = rfs_printed_end(shown);

    rfs_table_add(table, "%s", text);
}

void rfs_table_add_dims(struct rfs_table *table, uint32_t ndim, const uint64_t *dims)
{
    struct rfs_printed shown;

    rfs_put_dims(rfs_printed_begin(&shown), ndim, dims);
    rfs_table_add_printed(table, &shown);
}

/* Columns of a terminal, near enough: characters. */
static size_t width_of(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* What is wider sticks out of its column, in its row alone: one long name must not pad all rows. */
#define WIDEST 128

/* *owed spaces stand before the next character, so that no line ends in spaces. */
static void print_cell(const struct rfs_column *column, size_t width, const char *text, int *owed,
                       FILE *out)
{
    const size_t have = width_of(text);
    const int pad = have < width ? (int)(width - have) : 0;
    if (column->right)
        *owed += pad;
    if (*text != '\0') {
        fprintf(out, "%*s%s", *owed, "", text);
        *owed = 0;
    }
    *owed += GAP + (column->right ? 0 : pad);
}

static void print_row(const struct rfs_table *table, const size_t *widths, const char *const *cells,
                      FILE *out)
{
    int owed = 0;
    for (size_t i = 0; i < table->n_columns; i++)
        print_cell(&table->columns[i], widths[i],
                   cells != NULL ? cells[i] : table->columns[i].title, &owed, out);
    fputc('\n', out);
}

void rfs_table_print(const struct rfs_table *table, FILE *out)
{
    const size_t columns = table->n_columns;
    size_t widths[RFS_TABLE_COLUMNS] = {0};
    assert(columns <= RFS_TABLE_COLUMNS);
    for (size_t i = 0; i < columns; i++)
        widths[i] = strlen(table->columns[i].title);
    for (size_t i = 0; i < table->cells.n; i++) {
        const size_t width = width_of(table->cells.data[i]);
        if (width > widths[i % columns])
            widths[i % columns] = width < WIDEST ? width : WIDEST;
    }
    print_row(table, widths, NULL, out);
    for (size_t row = 0; row + columns <= table->cells.n; row += columns)
        print_row(table, widths, table->cells.data + row, out);
}

void rfs_table_put_json(const struct rfs_table *table, struct rfs_json_write *json, const char *key)
{
    const size_t columns = table->n_columns;

    rfs_json_array(json, key, RFS_JSON_ROWS);
    for (size_t i = 0; i < table->cells.n; i++) {
        const struct rfs_column *column = &table->columns[i % columns];
        if (i % columns == 0)
            rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        if (column->json)
            rfs_json_print(json, column->title, "%s", table->cells.data[i]);
        else
            rfs_json_put_text(json, column->title, table->cells.data[i]);
        if (i % columns + 1 == columns)
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
