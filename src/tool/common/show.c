/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/show.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "tool/common/tool.h"

#include <assert.h>
#include <math.h>

void *rfs_printed_memory(void *memory)
{
    struct rfs_error err = {0};

    if (memory)
        return memory;
    rfs_fail_memory(&err);
    exit(rfs_tool_failed(&err));
}

FILE *rfs_printed_begin(struct rfs_printed *shown)
{
    *shown = (struct rfs_printed){.text = NULL};
    return shown->out = rfs_printed_memory(open_memstream(&shown->text, &shown->size));
}

char *rfs_printed_end(struct rfs_printed *shown)
{
    const int failed = ferror(shown->out);

    return rfs_printed_memory(fclose(shown->out) == 0 && !failed ? shown->text : NULL);
}

/* ---- shapes and layouts ---------------------------------------------------------------------- */

void rfs_show_dims(FILE *out, uint32_t ndim, const uint64_t *dims)
{
    char text[RFS_DIMS_TEXT(RFS_GRID_DIMS)];

    fputs(rfs_text_dims(text, sizeof text, ndim, dims), out);
}

void rfs_show_matrix(FILE *out, const struct rfs_layout *layout)
{
    fputc('[', out);
    for (uint32_t i = 0; i < layout->n_dev; i++)
        fprintf(out, "%s%" PRIu32, i > 0 ? ", " : "", layout->dev[i]);
    fputc(']', out);
}

void rfs_show_map(FILE *out, const struct rfs_layout *layout)
{
    fputc('[', out);
    for (uint32_t axis = 0; axis < layout->n_axes; axis++) {
        const uint32_t begin = layout->start[axis];
        const uint32_t end = layout->start[axis + 1];
        const bool one = end == begin + 1;

        fprintf(out, "%s%s", axis > 0 ? ", " : "", one ? "" : "[");
        for (uint32_t i = begin; i < end; i++)
            fprintf(out, "%s%" PRId32, i > begin ? ", " : "", layout->map[i]);
        fputs(one ? "" : "]", out);
    }
    fputc(']', out);
}

void rfs_show_box(FILE *out, uint32_t ndim, const uint64_t *whole, const uint64_t *at,
                  const uint64_t *len)
{
    fputc('[', out);
    for (uint32_t i = 0; i < ndim; i++) {
        fputs(i > 0 ? ", " : "", out);
        if (at[i] == 0 && len[i] == whole[i])
            fputc(':', out);
        else
            fprintf(out, "%" PRIu64 ":%" PRIu64, at[i], at[i] + len[i]);
    }
    fputc(']', out);
}

void rfs_show_cuts(FILE *out, const struct rfs_grid *grid)
{
    uint32_t cut = 0;

    for (uint32_t i = 0; i < grid->ndim; i++)
        if (grid->pieces[i] > 1)
            fprintf(out, "%saxis %" PRIu32 " in %" PRIu32, cut++ > 0 ? ", " : "", i,
                    grid->pieces[i]);
    if (grid->edge)
        fputs(" uneven pieces", out);
    if (grid->rounds > 1)
        fprintf(out, ", %" PRIu32 " of them in each slice", grid->rounds);
    if (cut == 0)
        fprintf(out, grid->ranks > 1 ? "whole on each of %" PRIu32 " devices" : "whole",
                grid->ranks);
    else if (grid->replicas > 1)
        fprintf(out, ", on %" PRIu32 " ranks each", grid->replicas);
}

void rfs_show_findings(const struct rfs_fit_findings *findings, const char *bad, bool strict,
                       size_t most)
{
    for (size_t i = 0; i < findings->list.n && i < most; i++) {
        const struct rfs_fit_finding *finding = &findings->list.data[i];
        printf("%s: %s", finding->bad || strict ? bad : "note", finding->kind);
        if (finding->at.param) {
            fputs(": '", stdout);
            rfs_text_put(stdout, finding->at.param);
        }
        fputs(finding->at.param ? "': " : ": ", stdout);
        rfs_text_put(stdout, finding->text);
        putchar('\n');
    }
    if (findings->list.n > most)
        printf("and %zu more (--json has all)\n", findings->list.n - most);
}

/* ---- tables ---------------------------------------------------------------------------------- */

#define GAP 2 /* columns between cells */
/* A wider cell sticks out of its column, in its row alone: one long name must not pad all rows. */
#define WIDEST 128
#define FURTHER_IN 4 /* columns before the rest of a row */

static bool is_shown(const struct rfs_table *table, const struct rfs_column *column)
{
    return !(column->cells & (table->json ? RFS_FOR_PEOPLE : RFS_FOR_SCRIPTS));
}

void rfs_table_row(struct rfs_table *table, const void *row)
{
    for (size_t i = 0; i < table->n_columns; i++)
        if (is_shown(table, &table->columns[i]))
            table->columns[i].put(table, row);
}

void rfs_table_text(struct rfs_table *table, const char *text)
{
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
        rfs_table_none(table, "");
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
    if (!table->json)
        rfs_table_text(table, for_people);
    else if (!RFS_PUSH(&table->cells, NULL))
        rfs_printed_memory(NULL);
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

void rfs_table_layout(struct rfs_table *table,
                      void (*show)(FILE *out, const struct rfs_layout *layout),
                      const struct rfs_layout *layout)
{
    show(rfs_table_cell(table), layout);
    rfs_table_cell_end(table);
}

void rfs_table_ranks(struct rfs_table *table, const uint32_t *ranks, size_t n)
{
    rfs_text_ranks(rfs_table_cell(table), ranks, n);
    rfs_table_cell_end(table);
}

/* Lists the columns that are shown in OUT; returns how many they are. */
static size_t list_shown(const struct rfs_table *table, const struct rfs_column **out)
{
    size_t n = 0;

    assert(table->n_columns <= RFS_TABLE_COLUMNS);
    for (size_t i = 0; i < table->n_columns; i++)
        if (is_shown(table, &table->columns[i]))
            out[n++] = &table->columns[i];
    assert(n == 0 || table->cells.n % n == 0);
    return n;
}

/* Prints a cell; *owed spaces stand before the next character, so that no line ends in spaces. */
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

/*
 * Prints a row; CELLS NULL: the headings. Where it is wider than a terminal of WIDTH columns, it
 * goes on in the next line, further in.
 */
static void print_row(const struct rfs_column *const *columns, size_t n, const size_t *widths,
                      const char *const *cells, size_t width, FILE *out)
{
    int owed = 0;
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        if (used > 0 && used + GAP + widths[i] > width) {
            fputc('\n', out);
            owed = FURTHER_IN;
            used = FURTHER_IN + widths[i];
        } else {
            used += (used > 0 ? GAP : 0) + widths[i];
        }
        print_cell(columns[i], widths[i], cells ? cells[i] : columns[i]->title, &owed, out);
    }
    fputc('\n', out);
}

void rfs_table_print(const struct rfs_table *table, FILE *out)
{
    const struct rfs_column *columns[RFS_TABLE_COLUMNS];
    size_t widths[RFS_TABLE_COLUMNS] = {0};
    const size_t n = list_shown(table, columns);
    const unsigned terminal = rfs_text_columns(fileno(out));
    const size_t room = terminal > 0 ? terminal : SIZE_MAX;

    for (size_t i = 0; i < n; i++)
        widths[i] = strlen(columns[i]->title);
    for (size_t i = 0; i < table->cells.n; i++) {
        const size_t width = rfs_text_width(table->cells.data[i]);
        if (width > widths[i % n])
            widths[i % n] = width < WIDEST ? width : WIDEST;
    }
    print_row(columns, n, widths, NULL, room, out);
    for (size_t row = 0; row + n <= table->cells.n; row += n)
        print_row(columns, n, widths, table->cells.data + row, room, out);
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
        if (!table->cells.data[i])
            rfs_json_put_null(json, name);
        else if (column->cells & (RFS_CELL_NUMBER | RFS_CELL_JSON))
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
