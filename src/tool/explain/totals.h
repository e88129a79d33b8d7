/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that destination ranks take from source files: of each rank, and of all together with what
 * several of them take counted once, as on a node that has read it and keeps it.
 *
 * Cost: 16 bytes for each pair of a rank and a file that gives it something; and of one parameter
 * at a time the boxes of all ranks, 280 bytes each. Parameters of the same geometries are looked at
 * once, where all files list the same.
 */
#pragma once

#include "tool/explain/explained.h"
#include "tool/explain/union.h"

struct rfs_taken {
    uint32_t file; /* id in the catalogue's files */
    uint32_t rank; /* of the source */
    uint64_t bytes;
};
struct rfs_takings {
    struct rfs_taken *data; /* ascending by file */
    size_t n, cap;
};

/* The part that is taken of a parameter in a file. */
struct rfs_totals_box {
    uint32_t file, rank, ndim;
    uint64_t item;                     /* bytes of an element */
    const struct rfs_rules_link *link; /* the box is one of its digits; or NULL */
    struct rfs_box box;
};

struct rfs_totals {
    size_t n_ranks;
    struct rfs_totals_rank {
        struct rfs_takings taken;
        uint64_t parameters, shown_bytes; /* bytes as shown */
    } * ranks;                            /* [n_ranks] by position in rfs_explain.selected */
    struct rfs_takings together;          /* each byte of a file once */
    uint64_t times;                       /* so many parameters are like the one at hand */
    RFS_VEC(struct rfs_totals_box) now;   /* of the parameter at hand */
    struct rfs_box_list boxes;            /* those of one file */
};

/* 0, or -ENOMEM with *err filled; to be freed in any case. */
int rfs_totals_begin(struct rfs_totals *totals, size_t n_ranks, struct rfs_error *err);
/* Adds a slice of the parameter at hand: its target and trace. False when out of memory. */
bool rfs_totals_add(struct rfs_totals *totals, const struct rfs_explain *explain,
                    const struct rfs_explained *slice);
/* The parameter at hand is complete. */
bool rfs_totals_next(struct rfs_totals *totals);
void rfs_totals_free(struct rfs_totals *totals);

/* All parameters of the selected ranks, which are planned. 0 or -errno with *err filled. */
int rfs_totals_all(struct rfs_totals *totals, struct rfs_explain *explain, struct rfs_error *err);

uint64_t rfs_takings_bytes(const struct rfs_takings *takings);
/* The distinct source ranks, ascending, malloc'ed: of takings, and of a slice. */
uint32_t *rfs_takings_ranks(const struct rfs_takings *takings, size_t *n);
uint32_t *rfs_explained_ranks(const struct rfs_explained *slice, size_t *n);
