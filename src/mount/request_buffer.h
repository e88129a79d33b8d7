/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A buffer for replies, one a thread, page-aligned, faulted in once and used again for each
 * request. It belongs to the calling thread, is overwritten by its next use, and goes when the
 * thread ends.
 */
#pragma once

#include "base/secret.h"

/* The largest request that the kernel is asked to send, and the size of a buffer. */
#define RFS_REQUEST_BYTES ((size_t)1 << 20)

/*
 * Guards buffers for SECRET from now on, as they hold decrypted content, and wipes them in the end.
 * SECRET is borrowed until the last buffer is taken; NULL for plain sources. To be called before
 * the first buffer is taken.
 */
void rfs_request_buffer_keep_secret(struct rfs_secret *secret);

/* Frees the calling thread's buffer, which otherwise goes when the thread ends. */
void rfs_request_buffer_drop(void);

/* Returns at least SIZE bytes, or NULL when out of memory. */
void *rfs_request_buffer_get(size_t size);
