/* SPDX-License-Identifier: Apache-2.0 */
/* The file adapter_config.json of view=peft: formats/safetensors/peft.h. */
#pragma once

#include "formats/safetensors/peft.h"
#include "plan/planner.h"
#include "view/internal.h"

/*
 * Makes that file for the shown tensors, which must be pairs of A and B of one rank. No tensor has
 * alpha: it is the option lora_alpha, or in the file mindformers_adapter_config.json of the source.
 * Returns 0, or -errno with *err filled. O(n log n).
 */
int rfs_view_adapter_config(struct rfs_view *view, const struct rfs_params *params,
                            struct rfs_image **out, struct rfs_error *err);
