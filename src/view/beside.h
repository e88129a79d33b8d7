/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room: files beside those of tensors in a view: the file that describes all others, and
 * files that are passed on as they are.
 */
#pragma once

#include "view/internal.h"

/*
 * Makes the image of FILE, and its plan: it depends on the sources of all ranks of the destination.
 * MAKE returns 0, or -errno with *err filled; so does this.
 */
int rfs_view_describe(struct rfs_view *view, size_t file,
                      int (*make)(struct rfs_view *view, struct rfs_image **out,
                                  struct rfs_error *err),
                      const struct rfs_image **out, struct rfs_error *err);

/*
 * Shows a file of that PATH as it is, with a NAME, as the view's next file. Nothing is shown where
 * there is no such file. It is read when it is asked for, as sources are. 0 or -errno with *err
 * filled.
 */
int rfs_view_pass_on(struct rfs_view *view, const char *path, const char *name,
                     struct rfs_error *err);
/* The same, of the file of that name of a source that describes itself. */
int rfs_view_pass_on_own(struct rfs_view *view, const char *name, struct rfs_error *err);

/* The plan of a file that depends on so many SOURCES at most. NULL when out of memory. */
struct rfs_rank_plan *rfs_view_own_plan(size_t sources);
