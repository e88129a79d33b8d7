/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of plain views (struct rfs_view_kind), each in the file that it is named after.
 */
#pragma once

#include "view/internal.h"

extern const struct rfs_view_kind rfs_kind_ranks; /* planned.c: a file for each rank */
extern const struct rfs_view_kind rfs_kind_flat; /* flat_view.c: one whole checkpoint in the root */
extern const struct rfs_view_kind rfs_kind_dcp;  /* dcp.c: view=dcp and view=hyper_parallel */
extern const struct rfs_view_kind rfs_kind_mindformers; /* mindformers.c: view=mindformers */
extern const struct rfs_view_kind rfs_kind_parts;       /* hfai_view.c: of a source in parts */

/*
 * Sets the kind that the source and the options ask for, makes the planner, and shows the files.
 * The catalogue is open. 0 or -errno with *err filled.
 */
int rfs_kind_open(struct rfs_view *view, struct rfs_error *err);

/* ---- values that are not tensors, of a source in chunks (planned.c) -------------------------- */

/* Reports a name that names= gave to two values, one at least an object: -EINVAL, *err filled. */
int rfs_view_objects_same_name(const char *source, const char *name, struct rfs_error *err);
/*
 * Checks that no two objects of a source in chunks are shown by one name. Returns 0, or -errno with
 * *err filled.
 */
int rfs_view_objects_check_names(struct rfs_view *view, struct rfs_error *err);
