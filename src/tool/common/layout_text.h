/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts, shapes and boxes as people read them, and as JSON arrays: "[2, 4]", "[[1, 0], -1]",
 * "[0:192, :]".
 */
#pragma once

#include "layout/grid.h"
#include "tool/common/table.h"

/* "[768, 48]" */
void rfs_put_dims(FILE *out, uint32_t ndim, const uint64_t *dims);
/* The device matrix: "[2, 4]". */
void rfs_put_matrix(FILE *out, const struct rfs_layout *layout);
/*
 * The tensor map: "[-1, 1]"; an axis that several device axes cut is a list of its own: "[[1, 0],
 * -1]".
 */
void rfs_put_map(FILE *out, const struct rfs_layout *layout);
/* Three cells: those two, and the size of the optimizer shard. */
void rfs_table_layout(struct rfs_table *table, const struct rfs_layout *layout);
/* As numpy indexes: "[0:192, :]"; ":" for an axis that is whole. */
void rfs_put_box(FILE *out, uint32_t ndim, const uint64_t *whole, const uint64_t *at,
                 const uint64_t *len);
/* "axis 0 in 4, axis 1 in 2; 2 replicas of each slice", or "whole on each of 8 devices". */
void rfs_put_cuts(FILE *out, const struct rfs_grid *grid);
