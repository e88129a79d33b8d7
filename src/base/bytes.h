/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that are put together one after the other. Begins as {0}. After a failure for want of
 * memory nothing more is added, and FAILED stays set: a caller may put many things and look once.
 */
#pragma once

#include "base/vec.h"

struct rfs_bytes {
    unsigned char *data; /* owned; NULL while nothing was put */
    size_t n, cap;
    bool failed;
};

/*
 * Room for MORE bytes behind the N that are there, which are not counted yet. NULL when out of
 * memory.
 */
unsigned char *rfs_bytes_room(struct rfs_bytes *bytes, size_t more);
/* False when this or an earlier call has failed. */
bool rfs_bytes_put(struct rfs_bytes *bytes, const void *data, size_t n);
static inline bool rfs_bytes_put_text(struct rfs_bytes *bytes, const char *text)
{
    return rfs_bytes_put(bytes, text, strlen(text));
}
/* In decimal. */
bool rfs_bytes_put_number(struct rfs_bytes *bytes, uint64_t number);
/* Empty, and without memory. */
void rfs_bytes_free(struct rfs_bytes *bytes);
