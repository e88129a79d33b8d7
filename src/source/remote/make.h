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

#include "source/remote/request.h"

/*
 * Makes all N requests at once. 0, or the -errno of the first that failed, with rfs_store_fail;
 * then the others were stopped. -ENOENT and -EACCES as the store answers; -ESTALE for another
 * version; -EINTR when the caller's work is cancelled; -EIO after the last try.
 */
int rfs_requests_make(struct rfs_request *requests, size_t n);
/* Frees what it owns. */
void rfs_request_free(struct rfs_request *request);
