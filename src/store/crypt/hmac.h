/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and HMAC over it. Threads: all functions; they keep nothing. */
#pragma once

#include "base/std.h"

#define RFS_SHA256_BYTES 32

/* False when out of memory. */
bool rfs_sha256(const void *data, size_t n, unsigned char out[RFS_SHA256_BYTES]);
/* OUT may be KEY. False when out of memory. */
bool rfs_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t n,
                     unsigned char out[RFS_SHA256_BYTES]);
