/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/emit.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

enum { TYPE_VARINT = 0, TYPE_LENGTH = 2 };

void rfs_emit_free(struct rfs_emit *emit)
{
    free(emit->data);
    *emit = (struct rfs_emit){0};
}

void rfs_emit_clear(struct rfs_emit *emit)
{
    emit->n = 0;
}

void rfs_emit_raw(struct rfs_emit *emit, const void *bytes, size_t length)
{
    if (emit->failed || length == 0)
        return;
    size_t need;
    if (!rfs_add_size(emit->n, length, &need)) {
        emit->failed = true;
        return;
    }
    if (need > emit->cap) {
        size_t cap = need > SIZE_MAX / 2 ? need : need * 2;
        unsigned char *data = realloc(emit->data, cap);
        if (data == NULL) {
            emit->failed = true;
            return;
        }
        emit->data = data;
        emit->cap = cap;
    }
    memcpy(emit->data + emit->n, bytes, length);
    emit->n = need;
}

static void put_varint(struct rfs_emit *emit, uint64_t value)
{
    unsigned char out[10];
    size_t n = 0;
    while (value >= 0x80) {
        out[n++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    out[n++] = (unsigned char)value;
    rfs_emit_raw(emit, out, n);
}

void rfs_emit_uint(struct rfs_emit *emit, uint32_t field, uint64_t value)
{
    put_varint(emit, (uint64_t)field << 3 | TYPE_VARINT);
    put_varint(emit, value);
}

void rfs_emit_int(struct rfs_emit *emit, uint32_t field, int64_t value)
{
    rfs_emit_uint(emit, field, (uint64_t)value);
}

void rfs_emit_head(struct rfs_emit *emit, uint32_t field, uint64_t length)
{
    put_varint(emit, (uint64_t)field << 3 | TYPE_LENGTH);
    put_varint(emit, length);
}

void rfs_emit_bytes(struct rfs_emit *emit, uint32_t field, const void *bytes, size_t length)
{
    rfs_emit_head(emit, field, length);
    rfs_emit_raw(emit, bytes, length);
}

void rfs_emit_text(struct rfs_emit *emit, uint32_t field, const char *text)
{
    rfs_emit_bytes(emit, field, text, strlen(text));
}

void rfs_emit_message(struct rfs_emit *emit, uint32_t field, const struct rfs_emit *message)
{
    emit->failed |= message->failed;
    rfs_emit_bytes(emit, field, message->data, message->n);
}
