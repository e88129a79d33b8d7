/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that a model of a known type has and a checkpoint has not, by the names alone: a loader
 * makes random weights in their place.
 */
#pragma once

#include "base/error.h"
#include "rules/hf_config.h"
#include "rules/known.h"

/*
 * Looks for what the N names of a checkpoint lack: a layer without a tensor, one that has less than
 * the others have, or a tensor that a model has once. CONFIG is the model's; SOURCE is named in
 * messages. Returns 1 with *missed filled, 0: nothing is known to be missing, or -ENOMEM.
 * O(names + layers × kinds of tensors).
 */
int rfs_missing_find(const struct rfs_known *known, const struct rfs_hf_config *config,
                     const char *const *names, size_t n, const char *source,
                     struct rfs_error *missed);
