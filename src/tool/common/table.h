/* SPDX-License-Identifier: Apache-2.0 */
/* A table of text cells: aligned columns for people, or an array of JSON objects for scripts. */
#ifndef RFS_TOOL_COMMON_TABLE_H
#define RFS_TOOL_COMMON_TABLE_H

#include "base/arena.h"
#include "base/json_write.h"
#include "base/vec.h"
#include "tool/common/show.h"

#include <stdbool.h>
#include <stdio.h>

struct rfs_column {
    const char *title; /* the heading, and the key in JSON */
    bool json;         /* cells are JSON already (numbers, arrays); else they are strings */
    bool right;        /* align to the right */
};

#define RFS_TABLE_COLUMNS 24 /* at most */

/* Zero-initialise, then set columns. */
struct rfs_table {
    const struct rfs_column *columns; /* borrowed */
    size_t n_columns;
    RFS_VEC(const char *) cells;
    struct rfs_arena arena; /* the cells' text */
};

/*
 * The next cell, from left to right, row by row. What is not printable UTF-8 becomes \xNN. Ends the
 * command where memory is short (show.h).
 */
void rfs_table_add(struct rfs_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The same of a text, which it ends. */
void rfs_table_add_printed(struct rfs_table *table, struct rfs_printed *shown);
/* "[768, 24]" */
void rfs_table_add_dims(struct rfs_table *table, uint32_t ndim, const uint64_t *dims);
void rfs_table_print(const struct rfs_table *table, FILE *out);
/* An array of objects, one a row. */
void rfs_table_put_json(const struct rfs_table *table, struct rfs_json_write *json,
                        const char *key);
void rfs_table_free(struct rfs_table *table);

#endif
