/* SPDX-License-Identifier: Apache-2.0 */
/* The messages inside a .ckpt file; walk.c draws them. */
#include "formats/ckpt/value.h"

#include "base/checked.h"
#include "base/text.h"

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
    int rc = rfs_wire_length(wire, end, &length) ?: rfs_wire_bytes(wire, length, &text);
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

/* Dimensions, one or packed. */
static int read_dims(struct rfs_wire *wire, uint64_t end, enum rfs_wire_type type,
                     struct rfs_value *value)
{
    uint64_t length;

    if (type == RFS_VARINT)
        return read_dim(wire, end, value);
    int rc = rfs_wire_length(wire, end, &length);
    const uint64_t stop = wire->pos + (rc == 0 ? length : 0);
    while (rc == 0 && wire->pos < stop)
        rc = read_dim(wire, stop, value);
    return rc;
}

static int read_tensor_field(struct rfs_wire *wire, uint64_t end,
                             const struct rfs_wire_field *field, struct rfs_value *value)
{
    if (field->number == 1 && (field->type == RFS_VARINT || field->type == RFS_LEN))
        return read_dims(wire, end, field->type, value);
    if (field->number == 2 && field->type == RFS_LEN && !value->has_type) {
        value->has_type = true;
        return read_type(wire, end, value);
    }
    if (field->number == 3 && field->type == RFS_LEN && !value->has_content) {
        value->has_content = true;
        return read_content(wire, end, value);
    }
    return field->number > 3
               ? rfs_wire_skip(wire, end, field->number, field->type)
               : rfs_wire_fail(wire, -EINVAL, field->begin, REMEDY_COPY,
                               "field %u of a tensor comes twice or has the wrong type",
                               field->number);
}

/* A tensor up to END; for one of a map only the framing is looked at. */
static int read_tensor(struct rfs_wire *wire, uint64_t end, struct rfs_value *value)
{
    struct rfs_wire_field field;
    int rc;

    value->has_type = value->has_content = false;
    while ((rc = rfs_wire_next(wire, end, &field)) == 1)
        if ((rc = read_tensor_field(wire, end, &field, value)) < 0)
            break;
    if (rc == 0 && (!value->has_type || !value->has_content))
        return rfs_wire_fail(wire, -EINVAL, wire->pos, REMEDY_COPY, "a tensor without its %s",
                             value->has_type ? "content" : "element type");
    return rc;
}

static int read_map_field(struct rfs_wire *wire, uint64_t end, const struct rfs_wire_field *field,
                          struct rfs_value *value)
{
    uint64_t length;

    if (field->number != 1)
        return rfs_wire_skip(wire, end, field->number, field->type);
    if (field->type != RFS_LEN)
        return rfs_wire_fail(wire, -EINVAL, field->begin, REMEDY_COPY,
                             "a map tensor holds something that is not a tensor");
    const int rc = rfs_wire_length(wire, end, &length);
    return rc < 0 ? rc : read_tensor(wire, wire->pos + length, value);
}

static int read_map(struct rfs_wire *wire, uint64_t end, struct rfs_value *value)
{
    struct rfs_wire_field field;
    int rc;

    while ((rc = rfs_wire_next(wire, end, &field)) == 1)
        if ((rc = read_map_field(wire, end, &field, value)) < 0)
            break;
    return rc;
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

static int read_body(struct rfs_wire *wire, const struct rfs_wire_field *field,
                     struct rfs_value *value)
{
    uint64_t length;

    value->has_body = true;
    value->type.kind = field->number == 2 ? RFS_TENSOR : RFS_MAP;
    const int rc = rfs_wire_length(wire, value->end, &length);
    if (rc < 0)
        return rc;
    const uint64_t stop = wire->pos + length;
    if (value->type.kind == RFS_TENSOR)
        return read_tensor(wire, stop, value);
    value->map = (struct rfs_extent){wire->pos, length};
    return read_map(wire, stop, value);
}

static int read_field(struct rfs_wire *wire, struct rfs_tables *tables,
                      const struct rfs_wire_field *field, struct rfs_value *value)
{
    if (field->number == 1 && field->type == RFS_LEN && !value->has_tag)
        return read_tag(wire, tables, value);
    if ((field->number == 2 || field->number == 3) && field->type == RFS_LEN && !value->has_body)
        return read_body(wire, field, value);
    return field->number > 3
               ? rfs_wire_skip(wire, value->end, field->number, field->type)
               : rfs_wire_fail(wire, -EINVAL, field->begin, REMEDY_COPY,
                               "field %u of a parameter comes twice or has the wrong type",
                               field->number);
}

int rfs_value_read(struct rfs_wire *wire, struct rfs_tables *tables, struct rfs_value *value)
{
    struct rfs_wire_field field;
    int rc;

    while ((rc = rfs_wire_next(wire, value->end, &field)) == 1)
        if ((rc = read_field(wire, tables, &field, value)) < 0)
            break;
    if (rc < 0)
        return rc;
    if (!value->has_tag || !value->has_body)
        return rfs_wire_fail(wire, -EINVAL, value->begin, REMEDY_COPY, "a value without a %s",
                             value->has_tag ? "tensor" : "name");
    if (value->type.kind == RFS_TENSOR && value->type.dtype == RFS_STR)
        value->type.kind = RFS_STRING;
    if (value->type.kind == RFS_MAP) {
        value->type.dtype = RFS_UINT8;
        value->extent = value->map;
    }
    return 0;
}
