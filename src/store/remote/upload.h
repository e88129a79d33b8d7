/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that are written: the calls of base/store.h, which says what each promises. A small
 * object takes one request; a large one is an upload of parts.
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

extern const struct rfs_store_uploads rfs_upload_calls;
