/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table, whose columns are described once: aligned text for people, or an array of JSON objects
 * for scripts. Cells are added from left to right, row by row, each of them in either form; those
 * of columns that the form lacks are dropped.
 *
 *     static const struct rfs_column columns[] = {
 *         {"name", RFS_CELL_TEXT},
 *         {"bytes", RFS_CELL_NUMBER},
 *         {"shared", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
 *     };
 *     struct rfs_table table = RFS_TABLE(columns, json);
 */
#pragma once

#include "base/arena.h"
#include "base/json_write.h"
#include "base/vec.h"
#include "tool/common/show.h"

enum {
    RFS_CELL_TEXT = 0,   /* a string */
    RFS_CELL_NUMBER = 1, /* aligned to the right; JSON as it stands, as the next ones */
    RFS_CELL_JSON = 2,
    RFS_FOR_PEOPLE = 4, /* in that form alone */
    RFS_FOR_SCRIPTS = 8,
};

struct rfs_column {
    const char *title; /* the heading, and the key in JSON with '_' for spaces */
    unsigned cells;    /* of the above */
};

#define RFS_TABLE_COLUMNS 24 /* at most */

/* Zero-initialise, then set columns. */
struct rfs_table {
    const struct rfs_column *columns; /* borrowed */
    size_t n_columns;
    bool json;                   /* for scripts */
    size_t at;                   /* column of the next cell */
    struct rfs_printed cell;     /* that is being written */
    RFS_VEC(const char *) cells; /* of the form's columns */
    struct rfs_arena arena;      /* the cells' text */
};
#define RFS_TABLE(list, for_scripts)                                                               \
    {                                                                                              \
        .columns = (list), .n_columns = sizeof(list) / sizeof *(list), .json = (for_scripts)       \
    }
/* Sets the columns of one whose form is set. */
#define RFS_TABLE_DESCRIBE(table, list)                                                            \
    ((table)->columns = (list), (table)->n_columns = sizeof(list) / sizeof *(list))

/*
 * The next cell. Bytes that are not printable UTF-8 become \xNN. Ends the command where memory is
 * short (show.h).
 */
void rfs_table_add(struct rfs_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void rfs_table_text(struct rfs_table *table, const char *text);
void rfs_table_u64(struct rfs_table *table, uint64_t number);
/* With so many digits for people, and all of them for scripts, or null if it is not finite. */
void rfs_table_real(struct rfs_table *table, int digits, double number);
void rfs_table_bool(struct rfs_table *table, bool value);
/* "[768, 24]" */
void rfs_table_dims(struct rfs_table *table, uint32_t ndim, const uint64_t *dims);
/* No value: null for scripts. */
void rfs_table_none(struct rfs_table *table, const char *for_people);
/* The same, with the text that is written between the two. */
FILE *rfs_table_cell(struct rfs_table *table);
void rfs_table_cell_end(struct rfs_table *table);

/* For people. */
void rfs_table_print(const struct rfs_table *table, FILE *out);
/* For scripts: an array of objects, one a row. */
void rfs_table_put_json(const struct rfs_table *table, struct rfs_json_write *json,
                        const char *key);
void rfs_table_free(struct rfs_table *table);
