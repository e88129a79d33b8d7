/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room: what stands beside the tensors' files in a view of a folder that describes
 * itself: the file that describes all others, and files of the source that are passed on.
 */
#ifndef RFS_VIEW_BESIDE_H
#define RFS_VIEW_BESIDE_H

#include "view/internal.h"

/*
 * Makes the image of FILE, which depends on the sources of all ranks of the destination, and with it
 * *plan, which has those; *plan is zero-initialised. MAKE returns 0, or -errno with *err filled; so
 * does this.
 */
int rfs_view_describe(struct rfs_view *view, size_t file,
                      int (*make)(struct rfs_view *view, struct rfs_image **out,
                                  struct rfs_error *err),
                      struct rfs_rank_plan *plan, const struct rfs_image **out,
                      struct rfs_error *err);

/*
 * Shows the file NAME of a source that describes itself as it is, if it has one, as the view's next
 * file; *plan is zero-initialised, and has a source then. 0 or -errno with *err filled.
 */
int rfs_view_pass_on(struct rfs_view *view, const char *name, struct rfs_rank_plan *plan,
                     struct rfs_error *err);

#endif
