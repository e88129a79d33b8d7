/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A buffer for replies, one a thread, page-aligned, faulted in once and used again for each
 * request. It belongs to the calling thread, is overwritten by its next use, and goes when the
 * thread ends.
 */
#pragma once

#include "base/std.h"

/* The largest request that the kernel is asked to send, and the size of a buffer. */
#define RFS_REQUEST_BYTES ((size_t)1 << 20)

/* Frees the calling thread's buffer, which otherwise goes when the thread ends. */
void rfs_request_buffer_drop(void);

/* Returns at least SIZE bytes, or NULL when out of memory. */
void *rfs_request_buffer_get(size_t size);
