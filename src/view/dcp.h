/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view=dcp, a folder that torch.distributed.checkpoint loads, and view=hyper_parallel, which
 * HyperParallel loads.
 */
#pragma once

#include "view/internal.h"

/* Returns the file that has the objects, or 0 if the view has none or is of another kind. */
size_t rfs_view_dcp_objects_file(const struct rfs_view *view);
