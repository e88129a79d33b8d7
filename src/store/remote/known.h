/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of objects (base/store.h): what is known of names and attributes, from listings and
 * single questions, until it is forgotten; versions of objects, and their bytes.
 *
 * An object's identity is its ETag, or else the time of its last change, with its size. Of a
 * version that is held all bytes are asked for by If-Match (or If-Unmodified-Since), and each
 * answer is compared; no request is needed to know that they belong together. A change is noticed
 * with the next request for the object, or when names are asked for anew.
 *
 * Large reads are cut into parts that are asked for at once. Small ones, as of headers, take blocks
 * that grow while they follow each other; at most RFS_BLOCKS_BYTES of them are kept.
 *
 * Threads: all functions. One lock, a leaf lock, not held across any request.
 */
#pragma once

#include "base/store.h"

const struct rfs_store *rfs_known_store(void);
/* Names, attributes and blocks; versions that are held stay. */
void rfs_known_forget(void);
