/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksums that save_checkpoint(…, crc_check=True) writes, verified. crc.c describes what they
 * cover.
 */
#pragma once

#include "base/log.h"
#include "base/options.h"
#include "formats/ckpt/walk.h"

#include <stdatomic.h>

/*
 * Reads the whole file, whose index this is (READ and FILE as for rfs_ckpt_walk), and compares.
 * Returns 0 when its checksum is right, 1 when it has none, -EINVAL when it is wrong, -ENOMEM, or
 * the result of READ; when negative with *err filled. Takes about 1 MiB of memory.
 */
int rfs_crc_verify(rfs_read_fn *read, void *ctx, enum rfs_format format,
                   const struct rfs_index *index, const struct rfs_tables *tables, const char *file,
                   struct rfs_error *err);

/* Logs that a file, or records of a file of torch.save, have no checksum; once for each TOLD. */
void rfs_crc_tell_none(struct rfs_log *log, atomic_bool *told, enum rfs_format format,
                       const char *file);
