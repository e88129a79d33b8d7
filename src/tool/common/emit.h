/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes protobuf wire format, as much of it as checkpoints and strategy files need.
 *
 *     field  = key | payload        key = varint(number << 3 | type)
 *     type 0 = varint               7 bits a byte, lowest first, the high bit set on all but the last;
 *                                   negative numbers are written as their 64-bit two's complement
 *     type 2 = length varint | that many bytes: strings, bytes, messages
 *
 * Source: protobuf.dev/programming-guides/encoding. A buffer that ran out of memory stays failed, so
 * that callers check once at the end. Zero-initialise with {0}. Not thread-safe.
 */
#ifndef RFS_TOOL_COMMON_EMIT_H
#define RFS_TOOL_COMMON_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rfs_emit {
    unsigned char *data; /* owned */
    size_t n, cap;
    bool failed;
};

void rfs_emit_free(struct rfs_emit *emit);
/* Empties it and keeps its memory. */
void rfs_emit_clear(struct rfs_emit *emit);

void rfs_emit_uint(struct rfs_emit *emit, uint32_t field, uint64_t value);
void rfs_emit_int(struct rfs_emit *emit, uint32_t field, int64_t value);
void rfs_emit_bytes(struct rfs_emit *emit, uint32_t field, const void *bytes, size_t length);
void rfs_emit_text(struct rfs_emit *emit, uint32_t field, const char *text);
void rfs_emit_message(struct rfs_emit *emit, uint32_t field, const struct rfs_emit *message);
/* Key and length alone; the caller writes LENGTH bytes after it by other means. */
void rfs_emit_head(struct rfs_emit *emit, uint32_t field, uint64_t length);
void rfs_emit_raw(struct rfs_emit *emit, const void *bytes, size_t length);

#endif
