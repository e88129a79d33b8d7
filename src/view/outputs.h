/* SPDX-License-Identifier: Apache-2.0 */
/* The outputs by the options: their format, and contradictions. */
#pragma once

#include "view/options.h"

/*
 * The format of the files shown: the requested one, else .ckpt, the default of
 * transform_checkpoints.
 */
enum rfs_format rfs_view_format(const struct rfs_options *options);

/*
 * 0, or -EINVAL with *err filled as a mistake of usage when options about outputs contradict each
 * other.
 */
int rfs_view_check_outputs(const struct rfs_options *options, struct rfs_error *err);
