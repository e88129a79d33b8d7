/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room: the groups of tensors in the hidden folder of a view with a planner. Group 0 is
 * the whole tensors, group 1 + R those of destination rank R.
 */
#pragma once

#include "view/internal.h"

/* How many there are where ranks are shown. */
uint32_t rfs_groups_count(const struct rfs_view *view);
/* Members of struct rfs_view_kind. */
int rfs_groups_tensors(struct rfs_view *view, uint32_t group, struct rfs_tensors *out,
                       struct rfs_error *err);
bool rfs_groups_tensors_are_ready(struct rfs_view *view, uint32_t group);
void rfs_groups_name_group(const struct rfs_view *view, uint32_t group, char out[32]);
#define RFS_GROUPS                                                                                 \
    .tensors = rfs_groups_tensors, .tensors_are_ready = rfs_groups_tensors_are_ready,              \
    .name_group = rfs_groups_name_group
