/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hfai's parts: which tensors of the state they hold, and where the bytes of each come from.
 *
 * A tensor that is cut on either side is a row of elements, cut along its only axis. One that is
 * whole on both sides is copied.
 */
#pragma once

#include "tool/explain/explained.h"

/* EXPLAIN's view is of parts. 0 with explain->parts owned by it, or -errno with *err filled. */
int rfs_explain_parts_open(struct rfs_explain *explain, struct rfs_error *err);
void rfs_explain_parts_free(struct rfs_explain_parts *parts);

size_t rfs_explain_parts_tensors(const struct rfs_explain_parts *parts);
/* The number of the tensor of that name; SIZE_MAX: there is none. */
size_t rfs_explain_parts_find(const struct rfs_explain_parts *parts, const char *name);
/*
 * The destination part that holds a tensor, or RFS_HFAI_PIECES or RFS_HFAI_EVERY; whether a part
 * has something of it.
 */
uint32_t rfs_explain_parts_held(const struct rfs_explain_parts *parts, size_t tensor);
bool rfs_explain_parts_has(const struct rfs_explain_parts *parts, size_t tensor, uint32_t part);
/* Makes the slice of a tensor for slice->rank: 1, 0 if that part has nothing of it, or -ENOMEM. */
int rfs_explain_parts_slice(struct rfs_explain *explain, size_t tensor,
                            struct rfs_explained *slice);
