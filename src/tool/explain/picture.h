/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a parameter, as SVG: the pieces that go from source files to slices. */
#pragma once

#include "view/inspect.h"

/*
 * Draws the view's parameter into the file PATH ("-": the standard output). 0 or -errno with *err
 * filled.
 */
int rfs_explain_picture(struct rfs_explained_view *view, const char *path, struct rfs_error *err);
