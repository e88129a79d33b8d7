/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture of what conversion rules make: left the source tensors, right the tensor that is made
 * of them, each as a matrix. The same elements have the same colour and label on both sides, also
 * where a rule transposes them. Axes before the last are one axis of rows.
 */
#pragma once

#include "tool/explain/made.h"

/* Rows and columns of a tensor's matrix, from … to, exclusive. */
struct region {
    uint64_t from[2], to[2];
};
enum { ROWS, COLS };

struct drawn {
    size_t tensor; /* in tensors */
    uint32_t colour;
    struct region at[2]; /* RFS_MADE, RFS_SOURCE */
    bool transposed;
    char label[96];
};

struct tensor {
    uint32_t source;
    const struct rfs_type *type;
    double top, height;
};

/* A slice of the destination, and the ranks that have it. */
struct owned {
    struct rfs_box box;
    RFS_VEC(uint32_t) ranks;
};

/* Elements of a tensor in one file have one colour. */
struct origin {
    uint32_t source, rank;
};

struct matrices {
    struct rfs_explain *explain;
    const struct rfs_type *made;
    RFS_VEC(struct tensor) tensors;
    RFS_VEC(struct drawn) drawn;
    RFS_VEC(struct owned) owned;
    RFS_VEC(struct origin) origins;
    char *title, *subtitle; /* owned */
    uint64_t bytes;
    bool transposed; /* some are */
    bool turns;      /* some have stripes */
    double height;   /* of the tensor that is made */
};

/* Whether an axis is of rows or of columns; how many of them one step along it is; their number. */
int rfs_matrix_line(const struct rfs_type *type, uint32_t axis);
uint64_t rfs_matrix_scale(const struct rfs_type *type, uint32_t axis);
uint64_t rfs_matrix_size(const struct rfs_type *type, int line);

/* Draws what was collected. */
void rfs_matrices_draw(struct matrices *m, FILE *out);
