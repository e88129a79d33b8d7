/* SPDX-License-Identifier: Apache-2.0 */
/* A table of text cells: aligned columns for people, or an array of JSON objects for scripts. */
#ifndef RFS_TOOL_TABLE_H
#define RFS_TOOL_TABLE_H

#include "base/arena.h"
#include "base/vec.h"

#include <stdbool.h>
#include <stdio.h>

struct rfs_column {
    const char *title; /* the heading, and the key in JSON */
    bool json;         /* cells are JSON already (numbers, arrays); else they are strings */
    bool right;        /* align to the right */
};

/* Zero-initialise, then set columns. */
struct rfs_table {
    const struct rfs_column *columns; /* borrowed */
    size_t n_columns;
    RFS_VEC(const char *) cells;
    struct rfs_arena arena; /* the cells' text */
    bool failed;            /* out of memory */
};

/* The next cell, from left to right, row by row. What is not printable UTF-8 becomes \xNN. */
void rfs_table_add(struct rfs_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void rfs_table_print(const struct rfs_table *table, FILE *out);
void rfs_table_print_json(const struct rfs_table *table, FILE *out);
void rfs_table_free(struct rfs_table *table);

/* TEXT as a JSON string, quotes included; what is not printable UTF-8 becomes \xNN in its value. */
void rfs_json_text(FILE *out, const char *text);

#endif
