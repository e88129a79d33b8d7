/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room: view=dcp, a folder that torch.distributed.checkpoint loads. */
#pragma once

#include "view/internal.h"

/* Shows .metadata and a file for each rank of the destination. 0 or -errno with *err filled. */
int rfs_view_dcp(struct rfs_view *view, struct rfs_error *err);
void rfs_dcp_view_free(struct rfs_dcp_view *dcp);
/* The file that has the objects; 0: such a view, or any other, has none. */
size_t rfs_dcp_objects_file(const struct rfs_view *view);
