/* SPDX-License-Identifier: Apache-2.0 */
/* Views whose files are planned by a planner. */
#pragma once

#include "view/internal.h"

/*
 * Reads the strategies, makes the planner, and shows files. The catalogue is open. The files of a
 * flat view depend on the parameters and their sizes: the destination is planned, and their images
 * are ready. Returns 0 or -errno with *err filled.
 */
int rfs_view_planned_open(struct rfs_view *view, struct rfs_error *err);
