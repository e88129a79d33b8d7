/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of hfai's parts: PART_*.pt for another number of processes in the root, and the whole state
 * in the folder "merged". Safetensors files are made when the view is opened, the others on demand.
 */
#pragma once

#include "hfai/hfai.h"
#include "view/internal.h"

/* Reads the parts, and shows files of them. The catalogue is open. 0 or -errno with *err filled. */
int rfs_hfai_view_open(struct rfs_view *view, struct rfs_error *err);
void rfs_hfai_view_free(struct rfs_hfai_view *hfai);
/* The parts of the source, and how they are divided among those that are shown: the view's. */
void rfs_hfai_view_parts(const struct rfs_view *view, const struct rfs_hfai **hfai,
                         const struct rfs_hfai_division **division);
