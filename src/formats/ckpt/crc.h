/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifies the checksums that save_checkpoint(…, crc_check=True) writes in .ckpt and safetensors
 * files. crc.c describes what they cover.
 */
#pragma once

#include "base/log.h"
#include "formats/ckpt/ckpt.h"

#include <stdatomic.h>

/*
 * Reads the whole file that INDEX describes, and compares its checksum, which a .ckpt has in a
 * TRAILER, and a safetensors file in its header. Returns 0 when it is right, 1 when there is none,
 * -EINVAL when it is wrong, -ENOMEM, or the error of a read; *err is filled when negative. Takes 1
 * MiB of memory.
 */
int rfs_crc_verify(const struct rfs_bytes_source *from, bool trailer, const struct rfs_index *index,
                   const struct rfs_tables *tables, struct rfs_error *err);

/* Logs once for each TOLD that a file, or with RECORDS some records of it, have no checksum. */
void rfs_crc_tell_none(struct rfs_log *log, atomic_bool *told, bool records, const char *file);
