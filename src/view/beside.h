/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room: files beside those of tensors in a view: the file that describes all others, and
 * files that are passed on as they are.
 */
#pragma once

#include "view/internal.h"

/*
 * Makes the image of a file, and adds to PLAN the sources that it depends on. 0, or -errno with
 * *err filled.
 */
typedef int rfs_view_make_fn(struct rfs_view *view, struct rfs_rank_plan *plan,
                             struct rfs_image **out, struct rfs_error *err);
/* Has the image of FILE made, with its plan, and publishes both. Returns what MAKE returns. */
int rfs_view_describe(struct rfs_view *view, size_t file, rfs_view_make_fn *make,
                      const struct rfs_image **out, struct rfs_error *err);
/* Adds the sources of all ranks of the destination to a plan, each once. 0 or -errno, as above. */
int rfs_view_take_sources(struct rfs_view *view, struct rfs_rank_plan *plan, struct rfs_error *err);

/*
 * Shows a file of that PATH, as it is or without CUT, with a NAME, as the view's next file. Nothing
 * is shown where there is no such file. It is read when it is asked for, as sources are. 0 or
 * -errno with *err filled.
 */
int rfs_view_pass_on(struct rfs_view *view, const char *path, const char *name,
                     const struct rfs_left_out *cut, struct rfs_error *err);
/* The same, of the file of that name of a source that describes itself. */
int rfs_view_pass_on_own(struct rfs_view *view, const char *name, struct rfs_error *err);

/* The plan of a file that depends on so many SOURCES at most. NULL when out of memory. */
struct rfs_rank_plan *rfs_view_own_plan(size_t sources);
