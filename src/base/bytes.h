/* SPDX-License-Identifier: Apache-2.0 */
/* A growing buffer of bytes. False means out of memory; what was put stays valid. Zero-initialise, free data. */
#ifndef RFS_BASE_BYTES_H
#define RFS_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct rfs_bytes {
    unsigned char *data; /* owned */
    size_t n, cap;
};

bool rfs_bytes_put(struct rfs_bytes *bytes, const void *data, size_t n);
static inline bool rfs_bytes_put_text(struct rfs_bytes *bytes, const char *text)
{
    return rfs_bytes_put(bytes, text, strlen(text));
}
/* In decimal. */
bool rfs_bytes_put_number(struct rfs_bytes *bytes, uint64_t number);

#endif
