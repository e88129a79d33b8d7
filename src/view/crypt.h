/* SPDX-License-Identifier: Apache-2.0 */
/* Encrypted sources: the key that the options name, and the cache's share for decrypted blocks. */
#pragma once

#include "view/internal.h"

/* The least cache with a key: room for one block, and for the pieces that are made of blocks. */
#define RFS_CRYPT_WORK (UINT64_C(16) << 20)
#define RFS_CRYPT_LEAST (RFS_CIPHER_BLOCK + RFS_CRYPT_WORK)

/* Reads the key that OPTIONS name: *OUT, owned by the caller. 0, or -errno with *err filled. */
int rfs_view_read_key(const struct rfs_options *options, struct rfs_log *log, struct rfs_key **out,
                      struct rfs_error *err);
/*
 * Loads the key, if the options name one, and sets set->encrypted, which gets a share of
 * options.cache. A default cache that is too small for a key is enlarged; an explicit one is
 * refused. 0 or -errno with *err filled. Before the catalogue is opened.
 */
int rfs_view_load_key(struct reshard_view *set, struct rfs_error *err);

/*
 * Checks that the key, if any, opens the first source, or else the second, so that a wrong key is
 * reported now. Starts no thread. 0, or -errno with *err filled for the first.
 */
int rfs_view_try_key(struct rfs_view *view, struct rfs_error *err);
