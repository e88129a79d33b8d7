/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to a store, signed, and tried again where that may help: after broken and stalled
 * connections, short bodies, wrong ranges, 408, 429 and 5xx, with waits that grow from 0.1 s to
 * 20 s and are shortened at random by up to a half. Bytes of a range that arrived stay: the next
 * try asks for the rest. All of that is of one version of the object, or the request fails.
 *
 * Threads: all functions; a request belongs to one thread.
 */
#pragma once

#include "store/remote/request.h"

/*
 * Memory for lists of objects: answers without a range, and what is kept of them. All of them
 * together take at most RFS_LISTS_BYTES.
 */
#define RFS_LISTS_BYTES ((uint64_t)256 << 20)
/* Whether BYTES more are to be had; rfs_lists_give must follow. */
bool rfs_lists_take(uint64_t bytes);
void rfs_lists_give(uint64_t bytes);
/* There are not: -EFBIG, with rfs_store_fail. */
int rfs_lists_fail(void);

/*
 * Makes all N requests at once. 0, or the -errno of the first that failed, with rfs_store_fail;
 * then the others were stopped. -ENOENT and -EACCES as the store answers; -ESTALE for another
 * version; -EINTR when the caller's work is cancelled; -EIO after the last try.
 */
int rfs_requests_make(struct rfs_request *requests, size_t n);
/* Frees what it owns. */
void rfs_request_free(struct rfs_request *request);
