/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes .ckpt files, which ckpt.c draws. The index of one is built from its headers:
 * contents are skipped, never read.
 */
#pragma once

#include "base/error.h"
#include "base/pool.h"
#include "formats/image.h"
#include "formats/index.h"
#include "formats/walker.h"

/*
 * Walks a file from header to header. Names and types are added to TABLES, also by a walk that
 * fails; the index refers to them by id, so TABLES outlive it. err may be NULL. Returns 0 with *out
 * owned by the caller (rfs_index_free), else *out is NULL: -ENODATA for a file without parameters
 * (of no bytes, or a checksum alone), -EINVAL for an invalid checkpoint, -EFBIG for a size beyond
 * what an index can hold, -ENOMEM, or the error of a read, each with *err filled.
 */
int rfs_ckpt_walk(const struct rfs_bytes_source *from, struct rfs_tables *tables,
                  struct rfs_index **out, struct rfs_error *err);

/*
 * Compares the file's headers with those of PREDICTION, byte for byte and offset for offset.
 * Returns 1 when they are equal (then PREDICTION is the file's index, too), 0 when not, or -errno.
 * Reads all headers, in large parallel batches.
 */
int rfs_ckpt_matches(const struct rfs_bytes_source *from, const struct rfs_index *prediction,
                     struct rfs_tables *tables, struct rfs_pool *pool);

/*
 * Compares a sample: the file's size, its end, and SAMPLES of its headers (two or more), evenly
 * spread from the first to the last, each at its offset. Returns 1 when all are those of
 * PREDICTION, 0 when not, or -errno.
 */
int rfs_ckpt_resembles(const struct rfs_bytes_source *from, const struct rfs_index *prediction,
                       struct rfs_tables *tables, size_t samples);

/*
 * Makes the .ckpt file that save_checkpoint writes for these tensors. CRC: with its trailer. 0,
 * -ENOMEM, or -EFBIG when it would be larger than a file can be.
 */
int rfs_ckpt_encode(const struct rfs_image_tensor *tensors, size_t n, bool crc,
                    struct rfs_image **out);
/*
 * Appends the bytes that a .ckpt file has before CONTENT bytes of a tensor, or of a chunk of one;
 * TYPE has the dims of the whole tensor. False when out of memory.
 */
#define RFS_CKPT_CHUNK (UINT64_C(512) << 20)
bool rfs_ckpt_put_head(struct rfs_bytes *out, const char *name, size_t name_bytes,
                       const struct rfs_type *type, uint64_t content);
