/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a parameter, as SVG: the pieces that go from source files to slices. */
#pragma once

#include "tool/explain/explained.h"

/* Draws into explain->svg. 0, or -errno with *err filled. */
int rfs_explain_picture(struct rfs_explain *explain, struct rfs_error *err);
