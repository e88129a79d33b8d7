/* SPDX-License-Identifier: Apache-2.0 */
/* The messages inside a .ckpt file; walk.c draws them. */
#include "source/ckpt/value.h"

#include "base/checked.h"
#include "base/text.h"

#include <errno.h>

#define REMEDY_COPY "compare the file with its original, or save it again"

static int read_dim(struct rfs_wire *wire, uint64_t end, struct rfs_value *value)
{
    const uint64_t begin = wire->pos;
    uint64_t dim;
    const int rc = rfs_wire_varint(wire, end, &dim);
    if (rc < 0)
        return rc;
    if (value->type.kind == RFS_MAP)
        return 0;
    if (dim > INT64_MAX)
        return rfs_wire_fail(wire, -EINVAL, begin, REMEDY_COPY, "dimension %u is negative (%lld)",
                             value->type.ndim, (long long)dim);
    if (value->type.ndim == RFS_MAX_DIMS)
        return rfs_wire_fail(wire, -EINVAL, begin, NULL,
                             "more than %d dimensions; no more are supported", RFS_MAX_DIMS);
    value->type.dims[value->type.ndim++] = dim;
    return 0;
}

static int read_type(struct rfs_wire *wire, uint64_t end, struct rfs_value *value)
{
    const uint64_t begin = wire->pos;
    const unsigned char *text;
    uint64_t length;
    int rc = rfs_wire_length(wire, end, &length);
    if (rc == 0)
        rc = rfs_wire_bytes(wire, length, &text);
    if (rc < 0)
        return rc;
    if (value->type.kind == RFS_MAP) /* numpy's names there; not interpreted */
        return 0;
    enum rfs_dtype dtype;
    if (!rfs_dtype_parse((const char *)text, (size_t)length, &dtype))
        return rfs_wire_fail(
            wire, -EINVAL, begin, "save it with an element type that this release knows",
            "unknown element type '%.*s'", (int)rfs_min_u64(length, 64), (const char *)text);
    value->type.dtype = (uint8_t)dtype;
    return 0;
}

static int read_content(struct rfs_wire *wire, uint64_t end, struct rfs_value *value)
{
    uint64_t length;
    const int rc = rfs_wire_length(wire, end, &length);
    if (rc < 0)
        return rc;
    const uint64_t have = wire->size - rfs_min_u64(wire->pos, wire->size);
    if (length > have)
        return rfs_wire_fail(wire, -EINVAL, wire->pos, REMEDY_COPY,
                             "the file is truncated in a tensor: it ends after %llu of its %llu "
                             "bytes",
                             (unsigned long long)have, (unsigned long long)length);
    value->extent = (struct rfs_extent){wire->pos, length};
    wire->pos += length;
    return 0;
}

/* A tensor up to END; for one of a map only the framing is looked at. */
static int read_tensor(struct rfs_wire *wire, uint64_t end, struct rfs_value *value)
{
    value->has_type = value->has_content = false;
    while (wire->pos < end) {
        const uint64_t begin = wire->pos;
        uint32_t field;
        enum rfs_wire_type type;
        int rc = rfs_wire_key(wire, end, &field, &type);
        if (rc < 0)
            return rc;
        if (field == 1 && type == RFS_VARINT) {
            rc = read_dim(wire, end, value);
        } else if (field == 1 && type == RFS_LEN) {
            uint64_t length;
            rc = rfs_wire_length(wire, end, &length);
            const uint64_t stop = wire->pos + (rc == 0 ? length : 0);
            while (rc == 0 && wire->pos < stop)
                rc = read_dim(wire, stop, value);
        } else if (field == 2 && type == RFS_LEN && !value->has_type) {
            value->has_type = true;
            rc = read_type(wire, end, value);
        } else if (field == 3 && type == RFS_LEN && !value->has_content) {
            value->has_content = true;
            rc = read_content(wire, end, value);
        } else if (field <= 3) {
            rc = rfs_wire_fail(wire, -EINVAL, begin, REMEDY_COPY,
                               "field %u of a tensor comes twice or has the wrong type", field);
        } else {
            rc = rfs_wire_skip(wire, end, field, type);
        }
        if (rc < 0)
            return rc;
    }
    if (!value->has_type || !value->has_content)
        return rfs_wire_fail(wire, -EINVAL, wire->pos, REMEDY_COPY, "a tensor without its %s",
                             value->has_type ? "content" : "element type");
    return 0;
}

static int read_map(struct rfs_wire *wire, uint64_t end, struct rfs_value *value)
{
    while (wire->pos < end) {
        const uint64_t begin = wire->pos;
        uint32_t field;
        enum rfs_wire_type type;
        int rc = rfs_wire_key(wire, end, &field, &type);
        if (rc < 0)
            return rc;
        if (field == 1 && type == RFS_LEN) {
            uint64_t length;
            rc = rfs_wire_length(wire, end, &length);
            if (rc == 0)
                rc = read_tensor(wire, wire->pos + length, value);
        } else if (field == 1) {
            rc = rfs_wire_fail(wire, -EINVAL, begin, REMEDY_COPY,
                               "a map tensor holds something that is not a tensor");
        } else {
            rc = rfs_wire_skip(wire, end, field, type);
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_tag(struct rfs_wire *wire, struct rfs_tables *tables, struct rfs_value *value)
{
    const unsigned char *text;
    uint64_t length;
    int rc = rfs_wire_length(wire, value->end, &length);
    const uint64_t begin = wire->pos;
    if (rc == 0)
        rc = rfs_wire_bytes(wire, length, &text);
    if (rc < 0)
        return rc;
    if (!rfs_text_is_utf8((const char *)text, (size_t)length))
        return rfs_wire_fail(wire, -EINVAL, begin, REMEDY_COPY,
                             "a parameter's name is not UTF-8 text without NULs: the file is "
                             "damaged, or not a checkpoint");
    value->name = rfs_intern_add(tables->names, text, (size_t)length);
    if (value->name == RFS_NO_ID)
        return rfs_wire_fail(wire, -ENOMEM, begin, NULL, "out of memory");
    value->has_tag = true;
    wire->param = rfs_intern_text(tables->names, value->name);
    return 0;
}

int rfs_value_read(struct rfs_wire *wire, struct rfs_tables *tables, struct rfs_value *value)
{
    struct rfs_extent body = {0, 0};

    while (wire->pos < value->end) {
        const uint64_t begin = wire->pos;
        uint32_t field;
        enum rfs_wire_type type;
        uint64_t length;
        int rc = rfs_wire_key(wire, value->end, &field, &type);
        if (rc < 0)
            return rc;
        if (field == 1 && type == RFS_LEN && !value->has_tag) {
            rc = read_tag(wire, tables, value);
        } else if ((field == 2 || field == 3) && type == RFS_LEN && !value->has_body) {
            value->has_body = true;
            value->type.kind = field == 2 ? RFS_TENSOR : RFS_MAP;
            rc = rfs_wire_length(wire, value->end, &length);
            body = (struct rfs_extent){wire->pos, rc == 0 ? length : 0};
            const uint64_t stop = body.offset + body.bytes;
            if (rc == 0)
                rc = field == 2 ? read_tensor(wire, stop, value) : read_map(wire, stop, value);
        } else if (field <= 3) {
            rc = rfs_wire_fail(wire, -EINVAL, begin, REMEDY_COPY,
                               "field %u of a parameter comes twice or has the wrong type", field);
        } else {
            rc = rfs_wire_skip(wire, value->end, field, type);
        }
        if (rc < 0)
            return rc;
    }
    if (!value->has_tag || !value->has_body)
        return rfs_wire_fail(wire, -EINVAL, value->begin, REMEDY_COPY, "a value without a %s",
                             value->has_tag ? "tensor" : "name");
    if (value->type.kind == RFS_TENSOR && value->type.dtype == RFS_STR)
        value->type.kind = RFS_STRING;
    if (value->type.kind == RFS_MAP) {
        value->type.dtype = RFS_UINT8;
        value->extent = body;
    }
    return 0;
}
