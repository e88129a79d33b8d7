/* SPDX-License-Identifier: Apache-2.0 */
/* view=mindformers, the folder of an iteration of Checkpoint 2.0. */
#pragma once

#include "view/internal.h"

/*
 * Shows metadata.json and the files of the ranks that store something. The first rank of each stage
 * of the destination is planned for their names. Returns 0 or -errno with *err filled.
 */
int rfs_view_mindformers_open(struct rfs_view *view, struct rfs_error *err);
