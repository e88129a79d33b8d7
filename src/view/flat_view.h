/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views whose files lie in the root: one whole checkpoint is divided into shards, a safetensors
 * file each, and a JSON file maps parameters to files.
 */
#pragma once

#include "view/internal.h"

/*
 * Plans the whole checkpoint, and shows the files of view=huggingface or of view=unified. Returns 0
 * or -errno with *err filled.
 */
int rfs_view_flat_open(struct rfs_view *view, struct rfs_error *err);
