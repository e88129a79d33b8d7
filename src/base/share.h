/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for reading headers, pickles and the like, which all threads share: when many ranks are
 * indexed at once, no more of their headers are in memory than fit RFS_SHARE_BYTES, or one that is
 * larger by itself. Thread-safe.
 */
#pragma once

#include "base/std.h"

#define RFS_SHARE_BYTES ((size_t)32 << 20)

/*
 * Waits until there is room for BYTES, and notes them in *share, which was 0. The caller must hold
 * no lock. 0, or -EINTR when the caller's work was cancelled meanwhile (cancel.h).
 */
int rfs_share_take(size_t *share, size_t bytes);
/* Gives back the share, which may be 0. */
void rfs_share_give(size_t *share);

/* A share that ends with the scope: RFS_SHARED share = 0; */
#define RFS_SHARED __attribute__((cleanup(rfs_share_give))) size_t
