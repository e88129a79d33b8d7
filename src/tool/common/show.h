/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts that commands print: shapes and layouts as people read them, and tables.
 */
#pragma once

#include "base/arena.h"
#include "base/json_write.h"
#include "base/text.h"
#include "base/vec.h"
#include "survey/headers/fit.h"

/*
 * A text in the making. Where memory is short, the command ends with one line and status 1, as what
 * it prints would be incomplete. By the main thread only.
 */
struct rfs_printed {
    FILE *out; /* the stream to write to, until the text is ended */
    char *text;
    size_t size;
};

FILE *rfs_printed_begin(struct rfs_printed *shown);
/* Returns the text, malloc'ed and never NULL. */
char *rfs_printed_end(struct rfs_printed *shown);

/* Returns MEMORY, which was allocated for output and is checked here: never NULL. */
void *rfs_printed_memory(void *memory);

/* ---- shapes and layouts, as people read them and as JSON arrays ------------------------------ */

/* Prints "[768, 48]". */
void rfs_show_dims(FILE *out, uint32_t ndim, const uint64_t *dims);
/* Prints the device matrix: "[2, 4]". */
void rfs_show_matrix(FILE *out, const struct rfs_layout *layout);
/*
 * Prints the tensor map: "[-1, 1]"; an axis that several device axes cut is a list of its own:
 * "[[1, 0], -1]".
 */
void rfs_show_map(FILE *out, const struct rfs_layout *layout);
/* Prints a box as numpy indexes: "[0:192, :]"; ":" for an axis that is whole. */
void rfs_show_box(FILE *out, uint32_t ndim, const uint64_t *whole, const uint64_t *at,
                  const uint64_t *len);
/* Prints "axis 0 in 4, axis 1 in 2, on 2 ranks each", or "whole on each of 8 devices". */
void rfs_show_cuts(FILE *out, const struct rfs_grid *grid);

/*
 * Prints findings, a line each: "BAD: kind: 'parameter': text" or "note: …"; not more than MOST,
 * and how many more there are. STRICT: all are bad.
 */
void rfs_show_findings(const struct rfs_fit_findings *findings, const char *bad, bool strict,
                       size_t most);

/* ---- tables ---------------------------------------------------------------------------------- */

/*
 * A table of rows that are all alike: aligned text for people, or an array of JSON objects for
 * scripts. A column says in which of the two it is, and has the function that adds the cell of a
 * row.
 *
 *     RFS_CELL(put_name, struct tensor, rfs_table_text(table, row->name))
 *     RFS_CELL(put_bytes, struct tensor, rfs_table_u64(table, row->bytes))
 *     RFS_CELL(put_shared, struct tensor, rfs_table_bool(table, row->shared))
 *     static const struct rfs_column columns[] = {
 *         {"name", RFS_CELL_TEXT, put_name},
 *         {"bytes", RFS_CELL_NUMBER, put_bytes},
 *         {"shared", RFS_CELL_JSON | RFS_FOR_SCRIPTS, put_shared},
 *     };
 *     struct rfs_table table = RFS_TABLE(columns, json);
 *     rfs_table_row(&table, &tensor);
 */
enum {
    RFS_CELL_TEXT = 0,   /* a string */
    RFS_CELL_NUMBER = 1, /* aligned to the right; in JSON it stands as it is */
    RFS_CELL_JSON = 2,   /* stands in JSON as it is */
    RFS_FOR_PEOPLE = 4,  /* a column of that form alone */
    RFS_FOR_SCRIPTS = 8,
};

struct rfs_table;

struct rfs_column {
    const char *title; /* the heading, and the key in JSON with '_' for spaces */
    unsigned cells;    /* RFS_CELL_…, and RFS_FOR_… */
    void (*put)(struct rfs_table *table, const void *row); /* adds one cell */
};
/* Defines NAME, a static function for a column: statements that add the cell of ROW to TABLE. */
#define RFS_CELL(name, type, ...)                                                                  \
    static void name(struct rfs_table *table, const void *row_)                                    \
    {                                                                                              \
        type const *row = row_;                                                                    \
        __VA_ARGS__;                                                                               \
    }

#define RFS_TABLE_COLUMNS 24 /* at most */

/* Zero-initialise, then set columns. */
struct rfs_table {
    const struct rfs_column *columns; /* borrowed */
    size_t n_columns;
    bool json;                   /* the form is that for scripts */
    struct rfs_printed cell;     /* the cell that is being written */
    RFS_VEC(const char *) cells; /* cells of the form's columns */
    struct rfs_arena arena;      /* the cells' text */
};
#define RFS_TABLE(list, for_scripts)                                                               \
    {                                                                                              \
        .columns = (list), .n_columns = sizeof(list) / sizeof *(list), .json = (for_scripts)       \
    }
/* Sets the columns of a table whose form is set. */
#define RFS_TABLE_DESCRIBE(table, list)                                                            \
    ((table)->columns = (list), (table)->n_columns = sizeof(list) / sizeof *(list))
/* Adds the cells of a row that the table's form shows. */
void rfs_table_row(struct rfs_table *table, const void *row);

/*
 * Each of these adds a cell, for a column's function. Bytes that are not printable UTF-8 become
 * \xNN. Where memory is short, the command ends as with a struct rfs_printed.
 */
void rfs_table_add(struct rfs_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void rfs_table_text(struct rfs_table *table, const char *text);
void rfs_table_u64(struct rfs_table *table, uint64_t number);
/* Adds a number: DIGITS for people, and all digits for scripts, or null if it is not finite. */
void rfs_table_real(struct rfs_table *table, int digits, double number);
void rfs_table_bool(struct rfs_table *table, bool value);
/* Adds "[768, 24]". */
void rfs_table_dims(struct rfs_table *table, uint32_t ndim, const uint64_t *dims);
/* Adds what SHOW prints of a layout. */
void rfs_table_layout(struct rfs_table *table,
                      void (*show)(FILE *out, const struct rfs_layout *layout),
                      const struct rfs_layout *layout);
/* Adds "0-3,7". */
void rfs_table_ranks(struct rfs_table *table, const uint32_t *ranks, size_t n);
/* Adds a cell without a value: null for scripts. */
void rfs_table_none(struct rfs_table *table, const char *for_people);
/* Add the text that is written between the two calls. */
FILE *rfs_table_cell(struct rfs_table *table);
void rfs_table_cell_end(struct rfs_table *table);

/* Prints the table for people. On a terminal, rows are folded at its width; a cell is never cut. */
void rfs_table_print(const struct rfs_table *table, FILE *out);
/* Puts the table for scripts: an array of objects, one a row. */
void rfs_table_put_json(const struct rfs_table *table, struct rfs_json_write *json,
                        const char *key);
void rfs_table_free(struct rfs_table *table);
