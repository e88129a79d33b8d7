/* SPDX-License-Identifier: Apache-2.0 */
/* The whole tensors of hfai's parts, for whole.c, and the values beside them. */
#pragma once

#include "base/error.h"
#include "hfai/hfai.h"
#include "plan/planner.h"
#include "reshard.h"

struct rfs_view;
struct rfs_whole_parts;

/*
 * VIEW is of parts, and outlives the result. 0 with *out owned by the caller, or -errno with *err
 * filled.
 */
int rfs_whole_parts_open(struct rfs_view *view, struct rfs_whole_parts **out,
                         struct rfs_error *err);
void rfs_whole_parts_free(struct rfs_whole_parts *parts);

/* The models' tensors, then all others. */
const struct rfs_params *rfs_whole_parts_params(const struct rfs_whole_parts *parts);
size_t rfs_whole_parts_models(const struct rfs_whole_parts *parts);
/* As rfs_whole_slice. */
int rfs_whole_parts_slice(const struct rfs_whole_parts *parts, const struct rfs_target *target,
                          struct rfs_slice *slice);
/* Values that are no tensors, by name and then by hash. */
const struct rfs_hfai_value *rfs_whole_parts_values(const struct rfs_whole_parts *parts, size_t *n);
