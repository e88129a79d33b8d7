/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that are written: the second half of a store's calls (base/store.h), which names
 * what each promises. A small object takes one request; a large one is an upload of parts.
 *
 *     POST KEY?uploads                   <UploadId>…</UploadId>
 *     PUT  KEY?partNumber=1&uploadId=…   ETag, the MD5 of the part
 *     POST KEY?uploadId=…                <ETag>"MD5 of the parts' MD5s-N"</ETag>; now it is there
 *     HEAD KEY                           its size and its ETag, by which the store's words count
 *     GET  ?uploads=                     <Upload><Key>…</Key><UploadId>…</UploadId></Upload> …
 *     DELETE KEY?uploadId=…
 *
 * Where an answer was lost, the object that is there decides: with the bytes' MD5 it is the one
 * that was sent. Of an object that the store encrypts by keys of a service no MD5 is known; its
 * size and the store's own comparison of each part count then.
 *
 * Threads: all functions; parts of one upload may be sent by several at once. Locks: none.
 */
#pragma once

#include "base/store.h"

int rfs_upload_put(struct rfs_store *store, const char *url, const struct iovec *spans, int count,
                   const char *over, char etag[RFS_STORE_ETAG]);
int rfs_upload_begin(struct rfs_store *store, const char *url, uint64_t size, uint32_t parts,
                     struct rfs_upload **out);
int rfs_upload_send(struct rfs_upload *upload, uint32_t part, const struct iovec *spans, int count);
int rfs_upload_complete(struct rfs_upload *upload, const char *over);
void rfs_upload_drop(struct rfs_upload *upload);
int rfs_upload_remove(struct rfs_store *store, const char *url);
int rfs_upload_sweep(struct rfs_store *store, const char *folder,
                     bool (*is_ours)(void *ctx, const char *path), void *ctx);
