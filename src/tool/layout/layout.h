/* SPDX-License-Identifier: Apache-2.0 */
/* `reshard layout`: how a strategy spreads tensors over its devices. No checkpoint is looked at. */
#pragma once

#include "base/error.h"
#include "tool/layout/devices.h"

struct rfs_layout_job {
    const char *file, *param, *svg; /* the caller's; the last two may be NULL */
    bool json;
    bool has_shape;
    uint32_t n_shape;
    uint64_t shape[RFS_GRID_DIMS];

    struct rfs_strategy *strategy;
    struct rfs_groups groups;
};

/* Text for a terminal; UTF8: with box characters, else ASCII. */
void rfs_layout_draw(const struct rfs_layout_job *job, bool utf8);
/* Writes job->svg. 0 or -errno with *err filled. */
int rfs_layout_picture(const struct rfs_layout_job *job, struct rfs_error *err);
