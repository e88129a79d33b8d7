/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of things that `reshard info` shows, each as tables and lines. Not thread-safe. */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/vec.h"
#include "survey/headers/inspect_file.h"
#include "survey/whole_tensors.h"
#include "tool/common/args.h"
#include "tool/common/show.h"
#include "tool/common/source.h"

/* ---- rows of parameters ---------------------------------------------------------------------- */

/* Counters of types: one for each dtype of tensors, and one for maps. */
#define RFS_INFO_COUNTED (RFS_DTYPE_COUNT + 1)

enum rfs_info_order {
    RFS_INFO_BY_FILE,
    RFS_INFO_BY_SIZE,
    RFS_INFO_BY_NAME,
    RFS_INFO_BY_OFFSET,
};

/* The parameters that are asked for; borrowed. */
struct rfs_info_filter {
    struct rfs_globs *globs; /* patterns of names */
    int dtype;               /* enum rfs_dtype; -1: any */
    enum rfs_info_order order;
    size_t most; /* rows */
};

struct rfs_info_row {
    const char *name; /* borrowed from the index, or in the arena */
    const struct rfs_type *type;
    uint64_t bytes;  /* of its content, in the whole source as far as that is known */
    uint64_t offset; /* offset in the file, bytes */
    uint32_t id;     /* id of the name, in a tree */
};

/* The parameters that are shown, in order, and the sums of each type. */
struct rfs_info_rows {
    struct rfs_arena arena;
    RFS_VEC(struct rfs_info_row) list;
    uint64_t counts[RFS_INFO_COUNTED], content[RFS_INFO_COUNTED]; /* numbers and bytes of all */
    uint64_t bytes;
    size_t n; /* counted parameters */
};

/* Frees what the rows own. */
void rfs_info_rows_free(struct rfs_info_rows *rows);
/*
 * Counts a parameter, and adds its row if the filter lets it pass. Name and type are borrowed.
 * False when out of memory.
 */
bool rfs_info_rows_add(struct rfs_info_rows *rows, const struct rfs_info_filter *filter,
                       struct rfs_info_row row);
/* Rows, and the filter that they pass. */
struct rfs_info_listing {
    const struct rfs_info_filter *filter;
    struct rfs_info_rows rows;
    RFS_VEC(struct rfs_format_value) values; /* owned; their texts are in the rows' arena */
};
/*
 * Adds a parameter to a listing, CTX; name and type are copied if the filter lets it pass. False
 * when out of memory.
 */
bool rfs_info_listing_add(void *ctx, const char *name, const struct rfs_type *type,
                          uint64_t offset);
/* Adds a copy of a value beside the tensors to a listing, CTX. False when out of memory. */
bool rfs_info_listing_add_value(void *ctx, const struct rfs_format_value *value);
/* Sorts the rows, and drops those beyond the most. */
void rfs_info_rows_order(struct rfs_info_rows *rows, const struct rfs_info_filter *filter);
/* Add the cell of a ROW, a struct rfs_info_row, for columns of that name. */
static inline void rfs_info_put_name(struct rfs_table *table, const void *row)
{
    rfs_table_text(table, ((const struct rfs_info_row *)row)->name);
}
static inline void rfs_info_put_dtype(struct rfs_table *table, const void *row)
{
    rfs_table_text(table, rfs_whole_dtype(((const struct rfs_info_row *)row)->type));
}
static inline void rfs_info_put_shape(struct rfs_table *table, const void *row)
{
    const struct rfs_type *type = ((const struct rfs_info_row *)row)->type;

    rfs_table_dims(table, type->ndim, type->dims);
}
static inline void rfs_info_put_bytes(struct rfs_table *table, const void *row)
{
    rfs_table_u64(table, ((const struct rfs_info_row *)row)->bytes);
}
/* Fills a table of name, dtype, shape, bytes and, if they have one, offset. */
void rfs_info_rows_table(const struct rfs_info_rows *rows, bool offsets, struct rfs_table *table);

/* ---- the report ------------------------------------------------------------------------------ */

/* The command line; borrowed. */
struct rfs_info_args {
    const char *path;
    struct rfs_info_filter filter;
    bool json;
    bool all;                         /* read the headers of every rank */
    struct rfs_headers_source source; /* the options of -o; nothing is opened */
};

struct rfs_info_report {
    /* "checkpoint", "encrypted", "tree", "strategy", "parts", "boxes", "group info", "rules" */
    const char *kind;
    char *path;              /* the path that was read in the end; owned */
    struct rfs_table table;  /* the first for people; "rows", or as the key says, in JSON */
    const char *key;         /* NULL: "rows" */
    struct rfs_table second; /* "rows" then; none, if it has no columns */
    char *lines;             /* text for people, after the tables; owned, as the next ones */
    size_t lines_bytes;
    FILE *say;                  /* writes lines */
    struct rfs_bytes more;      /* members of the JSON object after the first two */
    struct rfs_json_write json; /* writes more, in an object */
    struct rfs_fit_findings findings;
    struct rfs_error failure; /* partial failure: printed at the end, and the exit status */
};

/* Adds "15 parameters: 13 Float32 (…), …", and the member "dtypes". */
void rfs_info_tell_types(struct rfs_info_report *report, const struct rfs_info_rows *rows);
/* Adds the values of a listing that have names: a line for each, and the member "values". */
void rfs_info_tell_values(struct rfs_info_report *report, const struct rfs_info_listing *listing);
/* Adds how many of the parameters the table shows, if not all. */
void rfs_info_tell_filter(struct rfs_info_report *report, const struct rfs_info_filter *filter,
                          const struct rfs_info_rows *rows);

/*
 * Add a checkpoint to a report that info.c began: rank folders or one whole checkpoint, parts of a
 * state of the format ROW, or a folder that describes itself. 0, or -errno with *err filled.
 */
int rfs_info_tree(struct rfs_info_args *args, const char *path, struct rfs_info_report *report,
                  struct rfs_error *err);
int rfs_info_parts(struct rfs_info_args *args, const char *path, const struct rfs_format_row *row,
                   struct rfs_info_report *report, struct rfs_error *err);
int rfs_info_chunks(struct rfs_info_args *args, const char *path, struct rfs_info_report *report,
                    struct rfs_error *err);

/*
 * Adds the files of tensors beside the open source that are not read: a line, and the member
 * "aside".
 */
void rfs_info_tell_aside(const struct rfs_info_args *args, struct rfs_info_report *report);
/* Adds findings of files in a rank's folder beside the checkpoint that counts. */
void rfs_info_find_beside(struct rfs_store *store, const char *folder,
                          struct rfs_fit_findings *findings);
