/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of hfai's parts: PART_*.pt for another number of processes in the root, and the whole state
 * in the folder "merged". Safetensors files are made when the view is opened, the others on demand.
 */
#pragma once

#include "formats/hfai/hfai.h"
#include "view/internal.h"

/*
 * Reads the parts, and shows files of them. The catalogue is open. Returns 0 or -errno with *err
 * filled.
 */
int rfs_view_hfai_open(struct rfs_view *view, struct rfs_error *err);
/*
 * Gives the parts of the source, and how they are divided among those that are shown: the view's.
 */
void rfs_view_hfai_parts(const struct rfs_view *view, const struct rfs_hfai **hfai,
                         const struct rfs_hfai_division **division);
