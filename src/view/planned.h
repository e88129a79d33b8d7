/* SPDX-License-Identifier: Apache-2.0 */
/* Views whose files are planned by a planner. */
#pragma once

#include "view/internal.h"

/*
 * The kind and the files of a view, once its planner is there. Those of a flat view depend on the
 * parameters and their sizes: the destination is planned, and their images are ready. 0 or -errno
 * with *err filled.
 */
int rfs_view_show_planned(struct rfs_view *view, struct rfs_error *err);
