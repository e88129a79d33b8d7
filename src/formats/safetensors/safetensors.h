/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the index of a safetensors file from its header: tensors are not read. safetensors.c draws
 * the format.
 */
#pragma once

#include "base/error.h"
#include "formats/index.h"
#include "formats/walker.h"

/* Bytes of the longest header that is read, as in the safetensors library and in MindSpore. */
#define RFS_SAFETENSORS_HEADER_MOST UINT64_C(100000000)

/*
 * Reads the header of a file of SIZE bytes. READ, FILE and TABLES are as for rfs_ckpt_walk. LIKE
 * (or NULL) is the index of another file, as this function gave it: when the two headers are equal
 * byte for byte, nothing is built. Returns 0 with *out owned by the caller, its entries in the
 * order of the header, or 1 when LIKE is this file's index too; else *out is NULL: -ENODATA for one
 * without tensors, -EINVAL for an invalid safetensors file, -ENOMEM, or READ's error, each with
 * *err filled. Takes as much memory as the header, for the time of the call.
 */
int rfs_safetensors_walk(rfs_read_fn *read, void *ctx, uint64_t size, const char *file,
                         struct rfs_tables *tables, const struct rfs_index *like,
                         struct rfs_index **out, struct rfs_error *err);
