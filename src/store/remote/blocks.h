/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of objects for small reads: the most recently used ones, RFS_BLOCKS_BYTES of them at most.
 *
 * Threads: all functions. One lock, a leaf lock, held over copies of small reads.
 */
#pragma once

#include "base/std.h"

#include <sys/uio.h>

#define RFS_BLOCKS_BYTES ((uint64_t)16 << 20)

/* Copies N bytes of object NUMBER from OFFSET on to the spans, if one block has all of them. */
bool rfs_block_copy(uint64_t number, uint64_t offset, size_t n, const struct iovec *spans,
                    int count);
/*
 * How many bytes to read from OFFSET on for a small read there: more where it goes on behind the
 * last block.
 */
uint64_t rfs_block_size(uint64_t number, uint64_t offset);
/* Keeps a block, which it takes over. */
void rfs_block_keep(uint64_t number, uint64_t offset, unsigned char *data, size_t n);
/* Frees those of one object; 0: of all. */
void rfs_block_drop(uint64_t number);
