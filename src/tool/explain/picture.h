/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a parameter, as SVG: the pieces that go from source files to slices. */
#pragma once

#include "survey/explain/explained.h"

/*
 * Prints a piece's elements of a side's tensor as a numpy index; rows in groups are
 * "0:64 and 2 more, each 96 further".
 */
void rfs_explain_put_place(FILE *out, const struct rfs_explained_piece *piece, int side);

/*
 * Draws the view's parameter into the file PATH ("-": the standard output). 0 or -errno with *err
 * filled.
 */
int rfs_explain_picture(struct rfs_explained_view *view, const char *path, struct rfs_error *err);
