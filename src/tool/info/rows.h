/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters that are shown: their choice, their order, and the sums of each type. */
#pragma once

#include "base/arena.h"
#include "base/vec.h"
#include "formats/index.h"
#include "tool/common/globs.h"
#include "tool/common/table.h"

/* How the types of the parameters are counted: those of tensors, and maps. */
#define RFS_COUNTED (RFS_DTYPE_COUNT + 1)

enum rfs_order { RFS_BY_FILE, RFS_BY_SIZE, RFS_BY_NAME, RFS_BY_OFFSET };

/* The request; borrowed. */
struct rfs_filter {
    struct rfs_globs *globs; /* of names */
    int dtype;               /* enum rfs_dtype; -1: any */
    enum rfs_order order;
    size_t most; /* rows */
};

struct rfs_row {
    const char *name; /* borrowed from the index, or in the arena */
    const struct rfs_type *type;
    uint64_t bytes;  /* by which it is sorted: of the file's, or over all ranks */
    uint64_t offset; /* in the file */
    uint32_t id;     /* its name's, in a tree */
};

struct rfs_rows {
    struct rfs_arena arena;
    RFS_VEC(struct rfs_row) list;
    uint64_t counts[RFS_COUNTED], content[RFS_COUNTED]; /* of all that was counted */
    uint64_t bytes;
    size_t n; /* counted */
};

void rfs_rows_free(struct rfs_rows *rows);
/*
 * Counts a parameter (BYTES over all ranks), and adds its row if the filter takes it. False when
 * out of memory.
 */
bool rfs_rows_add(struct rfs_rows *rows, const struct rfs_filter *filter, struct rfs_row row);
/* Sorts them, and drops those beyond the most. */
void rfs_rows_order(struct rfs_rows *rows, const struct rfs_filter *filter);

/* The same of a parameter whose name and type do not last. */
bool rfs_rows_keep(struct rfs_rows *rows, const struct rfs_filter *filter, const char *name,
                   const struct rfs_type *type, uint64_t offset);
/* Name, dtype, shape, bytes and, if they have one, offset. */
void rfs_rows_table(const struct rfs_rows *rows, bool offsets, struct rfs_table *table);
/* The type that a user names: MindSpore's name, numpy's or safetensors'. False when it is none. */
bool rfs_rows_parse_dtype(const char *text, int *dtype);
