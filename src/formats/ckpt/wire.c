/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protobuf on the wire: a message is a sequence of fields.
 *
 *   field   = key payload
 *   key     = varint(number << 3 | type)
 *   varint  = 7 bits a byte, lowest first, the top bit set on all bytes but the last; at most 10 bytes
 *   payload = type 0: varint | 1: 8 bytes | 2: varint(length) bytes | 5: 4 bytes
 *           | 3: fields, up to a key of the same number and type 4
 */
#include "formats/ckpt/wire.h"

#include "base/checked.h"
#include "base/secret.h"

#define REMEDY_COPY "compare the file with its original, or save it again"

void rfs_wire_release(struct rfs_wire *wire)
{
    rfs_wipe(wire->buf, wire->cap); /* contents lie between headers, and files may be encrypted */
    free(wire->buf);
    wire->buf = NULL;
    wire->cap = wire->len = 0;
}

int rfs_wire_fail(const struct rfs_wire *wire, int code, uint64_t offset, const char *remedy,
                  const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const struct rfs_where where = {wire->file, (int64_t)offset, wire->param};
    return rfs_fail(wire->err, code, where, remedy, "%s", text);
}

static int fail_end(const struct rfs_wire *wire, uint64_t offset)
{
    if (offset >= wire->size)
        return rfs_wire_fail(wire, -EINVAL, wire->size, REMEDY_COPY,
                             "the file ends in the middle of a header: it is truncated, or not a "
                             "checkpoint");
    return rfs_wire_fail(wire, -EINVAL, offset, REMEDY_COPY,
                         "a field runs over the end of the message that holds it: the file is "
                         "damaged, or not a checkpoint");
}

/* Makes N bytes at the position available in the window. */
static int wire_need(struct rfs_wire *wire, size_t n)
{
    if (wire->pos >= wire->start && wire->pos - wire->start <= wire->len &&
        n <= wire->len - (size_t)(wire->pos - wire->start))
        return 0;
    if (wire->pos > wire->size || n > wire->size - wire->pos)
        return fail_end(wire, wire->size);
    const uint64_t want = rfs_max_u64(n, RFS_WIRE_WINDOW);
    const size_t take = (size_t)rfs_min_u64(want, wire->size - wire->pos);
    if (take > wire->cap) {
        rfs_wire_release(wire);
        unsigned char *buf = malloc((size_t)want);
        if (!buf)
            return rfs_wire_fail(wire, -ENOMEM, wire->pos, NULL, "out of memory");
        wire->buf = buf;
        wire->cap = (size_t)want;
    }
    wire->len = 0;
    const int rc = wire->read(wire->ctx, wire->buf, take, wire->pos);
    if (rc < 0)
        return rfs_fail_read(wire->err,
                             (struct rfs_where){wire->file, (int64_t)wire->pos, wire->param}, rc);
    wire->start = wire->pos;
    wire->len = take;
    return 0;
}

int rfs_wire_varint(struct rfs_wire *wire, uint64_t end, uint64_t *value)
{
    const uint64_t begin = wire->pos;
    uint64_t sum = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (wire->pos >= end)
            return fail_end(wire, wire->pos);
        const int rc = wire_need(wire, 1);
        if (rc < 0)
            return rc;
        const unsigned char byte = wire->buf[wire->pos - wire->start];
        wire->pos++;
        if (shift == 63 && byte > 1)
            break;
        sum |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = sum;
            return 0;
        }
    }
    return rfs_wire_fail(wire, -EINVAL, begin, REMEDY_COPY,
                         "a number of more than 64 bits: the file is damaged, or not a checkpoint");
}

int rfs_wire_key(struct rfs_wire *wire, uint64_t end, uint32_t *field, enum rfs_wire_type *type)
{
    const uint64_t begin = wire->pos;
    uint64_t key;
    const int rc = rfs_wire_varint(wire, end, &key);
    if (rc < 0)
        return rc;
    const unsigned low = (unsigned)(key & 7);
    if (key > UINT32_MAX || key >> 3 == 0 || low > RFS_I32)
        return rfs_wire_fail(wire, -EINVAL, begin, REMEDY_COPY,
                             "not a protobuf field: the file is damaged, or not a checkpoint");
    *field = (uint32_t)(key >> 3);
    *type = (enum rfs_wire_type)low;
    return 0;
}

int rfs_wire_next(struct rfs_wire *wire, uint64_t end, struct rfs_wire_field *field)
{
    if (wire->pos >= end)
        return 0;
    field->begin = wire->pos;
    const int rc = rfs_wire_key(wire, end, &field->number, &field->type);
    return rc < 0 ? rc : 1;
}

int rfs_wire_length(struct rfs_wire *wire, uint64_t end, uint64_t *length)
{
    const uint64_t begin = wire->pos;
    const int rc = rfs_wire_varint(wire, end, length);
    if (rc < 0)
        return rc;
    uint64_t stop;
    if (!rfs_add_u64(wire->pos, *length, &stop) || stop > end)
        return fail_end(wire, begin);
    return 0;
}

int rfs_wire_bytes(struct rfs_wire *wire, uint64_t length, const unsigned char **bytes)
{
    if (length > RFS_WIRE_LONGEST)
        return rfs_wire_fail(wire, -EINVAL, wire->pos, REMEDY_COPY,
                             "a name of %llu bytes; at most %u are read",
                             (unsigned long long)length, RFS_WIRE_LONGEST);
    const int rc = wire_need(wire, (size_t)length);
    if (rc < 0)
        return rc;
    *bytes = length > 0 ? wire->buf + (wire->pos - wire->start) : (const unsigned char *)"";
    wire->pos += length;
    return 0;
}

/* Anything but a group. */
static int skip_plain(struct rfs_wire *wire, uint64_t end, enum rfs_wire_type type)
{
    uint64_t length;
    int rc = 0;
    switch (type) {
    case RFS_VARINT:
        return rfs_wire_varint(wire, end, &length);
    case RFS_I64:
        length = 8;
        break;
    case RFS_I32:
        length = 4;
        break;
    case RFS_LEN:
        rc = rfs_wire_length(wire, end, &length);
        break;
    case RFS_SGROUP:
    case RFS_EGROUP:
    default:
        return rfs_wire_fail(wire, -EINVAL, wire->pos, REMEDY_COPY,
                             "a group ends that did not begin: the file is damaged, or not a "
                             "checkpoint");
    }
    if (rc < 0)
        return rc;
    if (length > end - wire->pos || length > wire->size || wire->pos > wire->size - length)
        return fail_end(wire, length > end - wire->pos ? wire->pos : wire->size);
    wire->pos += length;
    return 0;
}

int rfs_wire_skip(struct rfs_wire *wire, uint64_t end, uint32_t field, enum rfs_wire_type type)
{
    uint32_t open[RFS_WIRE_GROUPS] = {0};
    unsigned depth = 0;
    for (;;) {
        int rc = 0;
        if (type == RFS_SGROUP) {
            if (depth == RFS_WIRE_GROUPS)
                return rfs_wire_fail(wire, -EINVAL, wire->pos, REMEDY_COPY,
                                     "groups nested more than %d deep", RFS_WIRE_GROUPS);
            open[depth++] = field;
        } else if (type == RFS_EGROUP && depth > 0 && open[depth - 1] == field) {
            depth--;
        } else {
            rc = skip_plain(wire, end, type);
        }
        if (rc < 0)
            return rc;
        if (depth == 0)
            return 0;
        rc = rfs_wire_key(wire, end, &field, &type);
        if (rc < 0)
            return rc;
    }
}
