/* SPDX-License-Identifier: Apache-2.0 */
/* What the options make of the outputs: their format, their names, and which files there are. */
#ifndef RFS_VIEW_OUTPUTS_H
#define RFS_VIEW_OUTPUTS_H

#include "view/internal.h"

/* The format of the files shown: what is asked for, else .ckpt, as transform_checkpoints writes by default. */
enum rfs_format rfs_view_format(const struct rfs_options *options);

/* As option format= has it. */
const char *rfs_view_format_name(enum rfs_format format);

/* 0, or -EINVAL with *err filled as a mistake of usage when options about outputs contradict each other. */
int rfs_view_check_outputs(const struct rfs_options *options, struct rfs_error *err);

/* The image of a rank's file. 0 or -errno with *err filled. */
int rfs_view_encode(struct reshard_view *view, const struct rfs_params *params,
                    struct rfs_image **out, struct rfs_error *err);

/*
 * The files that the view shows, once its planner is there. Those of a flat view depend on the parameters
 * and their sizes: the destination is planned, and their images are ready. 0 or -errno with *err filled.
 */
int rfs_view_list_files(struct reshard_view *view, struct rfs_error *err);

#endif
