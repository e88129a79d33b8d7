/* SPDX-License-Identifier: Apache-2.0 */
/* One tensor as a file. */
#pragma once

#include "base/error.h"
#include "base/vec.h"
#include "view/tensors.h"

/*
 * Makes the bytes that stand before those of a tensor, in a .npy file or with SAFETENSORS in a file
 * of that format. 0 with OUT owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_head(struct rfs_tensor tensor, bool safetensors, struct rfs_bytes *out,
                     struct rfs_error *err);
/* Bytes of a tensor that one message of a .ckpt file has at most. */
#define RFS_INSPECT_CKPT_CHUNK (UINT64_C(512) << 20)
/*
 * Appends the bytes that a .ckpt file has before CONTENT bytes of a tensor, or of a part of one;
 * TYPE has the dims of the whole tensor. False when out of memory.
 */
bool rfs_inspect_ckpt_head(struct rfs_bytes *out, const char *name, const struct rfs_type *type,
                           uint64_t content);
