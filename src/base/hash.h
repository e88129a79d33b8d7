/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-128 hashes, as numbers and as text: 32 hexadecimal digits, as `xxhsum -H128` prints them. */
#pragma once

#include "base/json_read.h"

#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

struct rfs_hash {
    uint64_t high, low;
};
static inline bool rfs_hash_equal(struct rfs_hash a, struct rfs_hash b)
{
    return a.high == b.high && a.low == b.low;
}

/* Returns the hash of a state of XXH3_128bits. */
static inline struct rfs_hash rfs_hash_of(const XXH3_state_t *state)
{
    const XXH128_hash_t hash = XXH3_128bits_digest(state);

    return (struct rfs_hash){hash.high64, hash.low64};
}

#define RFS_HASH_TEXT 33
/* Writes the 32 digits; returns OUT. */
const char *rfs_hash_text(struct rfs_hash hash, char out[RFS_HASH_TEXT]);
/* Reads a string that is a hash, for tables of JSON fields: AT is a struct rfs_hash. */
bool rfs_hash_read(struct rfs_json_read *json, void *at);
