/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures of a parameter, as SVG: its slices on both sides, and the pieces that go from the ones
 * to the others. Both functions write to explain->svg and return 0, or -errno with *err filled.
 */
#pragma once

#include "tool/explain/explained.h"

/* Draws the source's cells and the destination's slices as boxes of the whole tensor. */
int rfs_explain_picture(struct rfs_explain *explain, struct rfs_error *err);

/*
 * Draws what conversion rules make: source tensors left, the made tensor right, each as a matrix;
 * matrices.c.
 */
int rfs_explain_matrices(struct rfs_explain *explain, struct rfs_error *err);
