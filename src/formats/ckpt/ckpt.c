/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A .ckpt file is a protobuf message that is never in memory as a whole, as a concatenation of
 * messages is one message too:
 *
 *   file       = { 0a len value } [ trailer ]
 *   value      = 0a len tag        the parameter's name
 *                12 len tensor     or  1a len map
 *   tensor     = { 08 dim }        one a dimension, row-major; or 0a len { dim } (packed)
 *                12 len type       "Float32" …
 *                1a len content    little-endian
 *   map        = { 0a len tensor } keys, values, status
 *   trailer    = "crc_num" crc     10 bytes, big-endian crc32 of all before it; 17 bytes in all
 *
 * dim and len are varints. Fields may come in any order and unknown ones are skipped,
 * though no known writer does either. A tensor over 512 MiB is several consecutive values of one
 * name, each with the whole tensor's dims, and the contents one after the other. A scalar has no
 * dims, or one that is 0; a string has the type "str", one dim that is 0 and UTF-32LE for content.
 *
 * Protobuf on the wire:
 *
 *   message = { key payload }
 *   key     = varint(number << 3 | type)
 *   varint  = 7 bits a byte, lowest first, the top bit set on all bytes but the last; at most 10
 *   payload = type 0: varint | 1: 8 bytes | 2: varint(length) bytes | 5: 4 bytes
 *           | 3: fields, up to a key of the same number and type 4
 *
 * The file is read in small windows, which jump over contents.
 */
#include "formats/ckpt/ckpt.h"

#include "base/checked.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/text.h"
#include "base/vec.h"
#include "store/crypt/cipher.h"

#define TRAILER_BYTES 17u
#define FILE_LIMIT ((uint64_t)INT64_MAX) /* where a message may claim to end */
#define WINDOW 4096u                     /* bytes of an ordinary window */
#define NAME_MOST (1u << 20)             /* bytes of the longest name that is read */
#define GROUPS_MOST 64                   /* nesting of unknown groups that is followed */
#define REMEDY_COPY "compare the file with its original, or save it again"

/* ---- protobuf on the wire -------------------------------------------------------------------- */

enum wire_type { VARINT = 0, FIXED64 = 1, LENGTH = 2, GROUP_BEGIN = 3, GROUP_END = 4, FIXED32 = 5 };

/* A file that is read in windows. Bytes that the window holds are not read again. */
struct wire {
    struct rfs_bytes_source from;
    uint64_t pos;
    const char *param; /* the value at hand, once its name is known; borrowed */
    struct rfs_error *err;
    unsigned char *buf; /* owned */
    size_t cap;
    uint64_t start; /* offset of the window in the file */
    size_t len;     /* bytes of the window */
};

/* A field whose key was read. */
struct field {
    uint64_t begin;
    uint32_t number;
    enum wire_type type;
};

static void wire_release(struct wire *wire)
{
    rfs_secret_wipe(wire->buf,
                    wire->cap); /* contents lie between headers, and files may be encrypted */
    free(wire->buf);
    wire->buf = NULL;
    wire->cap = wire->len = 0;
}

/* Fails as rfs_fail does, for OFFSET in the file and the value at hand. */
__attribute__((format(printf, 5, 6))) static int wire_fail(const struct wire *wire, int code,
                                                           uint64_t offset, const char *remedy,
                                                           const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const struct rfs_where where = {wire->from.file, (int64_t)offset, wire->param};
    return rfs_fail(wire->err, code, where, remedy, "%s", text);
}

static int fail_memory(const struct wire *wire, uint64_t offset)
{
    return wire_fail(wire, -ENOMEM, offset, NULL, "out of memory");
}

/* The message around OFFSET ends there, or the file does. */
static int fail_end(const struct wire *wire, uint64_t offset)
{
    if (offset >= wire->from.size)
        return wire_fail(wire, -EINVAL, wire->from.size, REMEDY_COPY,
                         "the file ends in the middle of a header: it is truncated, or not a "
                         "checkpoint");
    return wire_fail(wire, -EINVAL, offset, REMEDY_COPY,
                     "a field runs over the end of the message that holds it: the file is "
                     "damaged, or not a checkpoint");
}

/* Makes N bytes at the position available in the window. */
static int need(struct wire *wire, size_t n)
{
    if (wire->pos >= wire->start && wire->pos - wire->start <= wire->len &&
        n <= wire->len - (size_t)(wire->pos - wire->start))
        return 0;
    if (wire->pos > wire->from.size || n > wire->from.size - wire->pos)
        return fail_end(wire, wire->from.size);
    const uint64_t want = rfs_max_u64(n, WINDOW);
    const size_t take = (size_t)rfs_min_u64(want, wire->from.size - wire->pos);
    if (take > wire->cap) {
        wire_release(wire);
        unsigned char *buf = malloc((size_t)want);
        if (!buf)
            return fail_memory(wire, wire->pos);
        wire->buf = buf;
        wire->cap = (size_t)want;
    }
    wire->len = 0;
    const int rc = rfs_bytes_source_read(&wire->from, wire->buf, take, wire->pos);
    if (rc < 0)
        return rfs_store_fail_read(
            wire->err, (struct rfs_where){wire->from.file, (int64_t)wire->pos, wire->param}, rc);
    wire->start = wire->pos;
    wire->len = take;
    return 0;
}

/*
 * Reads a number in a message that ends at END. END may lie beyond the end of a truncated file: the
 * first read behind that reports it.
 */
static int read_varint(struct wire *wire, uint64_t end, uint64_t *value)
{
    const uint64_t begin = wire->pos;
    uint64_t sum = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (wire->pos >= end)
            return fail_end(wire, wire->pos);
        const int rc = need(wire, 1);
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
    return wire_fail(wire, -EINVAL, begin, REMEDY_COPY,
                     "a number of more than 64 bits: the file is damaged, or not a checkpoint");
}

/* Reads the number and the type of a field. */
static int read_key(struct wire *wire, uint64_t end, uint32_t *field, enum wire_type *type)
{
    const uint64_t begin = wire->pos;
    uint64_t key;
    const int rc = read_varint(wire, end, &key);
    if (rc < 0)
        return rc;
    const unsigned low = (unsigned)(key & 7);
    if (key > UINT32_MAX || key >> 3 == 0 || low > FIXED32)
        return wire_fail(wire, -EINVAL, begin, REMEDY_COPY,
                         "not a protobuf field: the file is damaged, or not a checkpoint");
    *field = (uint32_t)(key >> 3);
    *type = (enum wire_type)low;
    return 0;
}

/* Reads the key of the next field of a message: 1, 0 at its end, or -errno. */
static int next_field(struct wire *wire, uint64_t end, struct field *field)
{
    if (wire->pos >= end)
        return 0;
    field->begin = wire->pos;
    const int rc = read_key(wire, end, &field->number, &field->type);
    return rc < 0 ? rc : 1;
}

/* Reads the length of a field; it ends at wire->pos + *length, which is within END. */
static int read_length(struct wire *wire, uint64_t end, uint64_t *length)
{
    const uint64_t begin = wire->pos;
    const int rc = read_varint(wire, end, length);
    if (rc < 0)
        return rc;
    uint64_t stop;
    if (!rfs_add_u64(wire->pos, *length, &stop) || stop > end)
        return fail_end(wire, begin);
    return 0;
}

/*
 * Gives LENGTH bytes at the position, which moves behind them. *bytes is valid until the next call.
 */
static int read_bytes(struct wire *wire, uint64_t length, const unsigned char **bytes)
{
    if (length > NAME_MOST)
        return wire_fail(wire, -EINVAL, wire->pos, REMEDY_COPY,
                         "a name of %llu bytes; at most %u are read", (unsigned long long)length,
                         NAME_MOST);
    const int rc = need(wire, (size_t)length);
    if (rc < 0)
        return rc;
    *bytes = length > 0 ? wire->buf + (wire->pos - wire->start) : (const unsigned char *)"";
    wire->pos += length;
    return 0;
}

/* Jumps over the payload of a field that is no group. */
static int skip_plain(struct wire *wire, uint64_t end, enum wire_type type)
{
    uint64_t length;
    int rc = 0;
    switch (type) {
    case VARINT:
        return read_varint(wire, end, &length);
    case FIXED64:
        length = 8;
        break;
    case FIXED32:
        length = 4;
        break;
    case LENGTH:
        rc = read_length(wire, end, &length);
        break;
    case GROUP_BEGIN:
    case GROUP_END:
    default:
        return wire_fail(wire, -EINVAL, wire->pos, REMEDY_COPY,
                         "a group ends that did not begin: the file is damaged, or not a "
                         "checkpoint");
    }
    if (rc < 0)
        return rc;
    if (length > end - wire->pos || length > wire->from.size ||
        wire->pos > wire->from.size - length)
        return fail_end(wire, length > end - wire->pos ? wire->pos : wire->from.size);
    wire->pos += length;
    return 0;
}

/* Jumps over an unknown field whose key was just read. */
static int skip_field(struct wire *wire, uint64_t end, uint32_t field, enum wire_type type)
{
    uint32_t open[GROUPS_MOST] = {0};
    unsigned depth = 0;
    for (;;) {
        int rc = 0;
        if (type == GROUP_BEGIN) {
            if (depth == GROUPS_MOST)
                return wire_fail(wire, -EINVAL, wire->pos, REMEDY_COPY,
                                 "groups nested more than %d deep", GROUPS_MOST);
            open[depth++] = field;
        } else if (type == GROUP_END && depth > 0 && open[depth - 1] == field) {
            depth--;
        } else {
            rc = skip_plain(wire, end, type);
        }
        if (rc < 0)
            return rc;
        if (depth == 0)
            return 0;
        rc = read_key(wire, end, &field, &type);
        if (rc < 0)
            return rc;
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A value, as far as it has been read. */
struct value {
    uint64_t begin, end; /* range of the message in the file */
    bool has_tag, has_body, has_type, has_content;
    uint32_t name;
    struct rfs_type type;     /* type without its bytes, which are not set */
    struct rfs_extent extent; /* the content of a tensor, or all of a map tensor */
    struct rfs_extent map;    /* the body of a map tensor */
};
static int read_dim(struct wire *wire, uint64_t end, struct value *value)
{
    const uint64_t begin = wire->pos;
    uint64_t dim;
    const int rc = read_varint(wire, end, &dim);
    if (rc < 0)
        return rc;
    if (value->type.kind == RFS_MAP)
        return 0;
    if (dim > INT64_MAX)
        return wire_fail(wire, -EINVAL, begin, REMEDY_COPY, "dimension %u is negative (%lld)",
                         value->type.ndim, (long long)dim);
    if (value->type.ndim == RFS_MAX_DIMS)
        return wire_fail(wire, -EINVAL, begin, NULL,
                         "more than %d dimensions; no more are supported", RFS_MAX_DIMS);
    value->type.dims[value->type.ndim++] = dim;
    return 0;
}

static int read_type(struct wire *wire, uint64_t end, struct value *value)
{
    const uint64_t begin = wire->pos;
    const unsigned char *text;
    uint64_t length;
    int rc = read_length(wire, end, &length) ?: read_bytes(wire, length, &text);
    if (rc < 0)
        return rc;
    if (value->type.kind == RFS_MAP) /* numpy's names there; not interpreted */
        return 0;
    enum rfs_dtype dtype;
    if (!rfs_dtype_parse((const char *)text, (size_t)length, &dtype))
        return wire_fail(
            wire, -EINVAL, begin, "save it with an element type that this release knows",
            "unknown element type '%.*s'", (int)rfs_min_u64(length, 64), (const char *)text);
    value->type.dtype = (uint8_t)dtype;
    return 0;
}

static int read_content(struct wire *wire, uint64_t end, struct value *value)
{
    uint64_t length;
    const int rc = read_length(wire, end, &length);
    if (rc < 0)
        return rc;
    const uint64_t have = wire->from.size - rfs_min_u64(wire->pos, wire->from.size);
    if (length > have)
        return wire_fail(wire, -EINVAL, wire->pos, REMEDY_COPY,
                         "the file is truncated in a tensor: it ends after %llu of its %llu "
                         "bytes",
                         (unsigned long long)have, (unsigned long long)length);
    value->extent = (struct rfs_extent){wire->pos, length};
    wire->pos += length;
    return 0;
}

/* Reads dimensions, one or packed. */
static int read_dims(struct wire *wire, uint64_t end, enum wire_type type, struct value *value)
{
    uint64_t length;

    if (type == VARINT)
        return read_dim(wire, end, value);
    int rc = read_length(wire, end, &length);
    const uint64_t stop = wire->pos + (rc == 0 ? length : 0);
    while (rc == 0 && wire->pos < stop)
        rc = read_dim(wire, stop, value);
    return rc;
}

static int read_tensor_field(struct wire *wire, uint64_t end, const struct field *field,
                             struct value *value)
{
    if (field->number == 1 && (field->type == VARINT || field->type == LENGTH))
        return read_dims(wire, end, field->type, value);
    if (field->number == 2 && field->type == LENGTH && !value->has_type) {
        value->has_type = true;
        return read_type(wire, end, value);
    }
    if (field->number == 3 && field->type == LENGTH && !value->has_content) {
        value->has_content = true;
        return read_content(wire, end, value);
    }
    return field->number > 3
               ? skip_field(wire, end, field->number, field->type)
               : wire_fail(wire, -EINVAL, field->begin, REMEDY_COPY,
                           "field %u of a tensor comes twice or has the wrong type", field->number);
}

/* Reads a tensor up to END; for one of a map only the framing is looked at. */
static int read_tensor(struct wire *wire, uint64_t end, struct value *value)
{
    struct field field;
    int rc;

    value->has_type = value->has_content = false;
    while ((rc = next_field(wire, end, &field)) == 1)
        if ((rc = read_tensor_field(wire, end, &field, value)) < 0)
            break;
    if (rc == 0 && (!value->has_type || !value->has_content))
        return wire_fail(wire, -EINVAL, wire->pos, REMEDY_COPY, "a tensor without its %s",
                         value->has_type ? "content" : "element type");
    return rc;
}

static int read_map_field(struct wire *wire, uint64_t end, const struct field *field,
                          struct value *value)
{
    uint64_t length;

    if (field->number != 1)
        return skip_field(wire, end, field->number, field->type);
    if (field->type != LENGTH)
        return wire_fail(wire, -EINVAL, field->begin, REMEDY_COPY,
                         "a map tensor holds something that is not a tensor");
    const int rc = read_length(wire, end, &length);
    return rc < 0 ? rc : read_tensor(wire, wire->pos + length, value);
}

static int read_map(struct wire *wire, uint64_t end, struct value *value)
{
    struct field field;
    int rc;

    while ((rc = next_field(wire, end, &field)) == 1)
        if ((rc = read_map_field(wire, end, &field, value)) < 0)
            break;
    return rc;
}

static int read_tag(struct wire *wire, struct rfs_tables *tables, struct value *value)
{
    const unsigned char *text;
    uint64_t length;
    int rc = read_length(wire, value->end, &length);
    const uint64_t begin = wire->pos;
    if (rc == 0)
        rc = read_bytes(wire, length, &text);
    if (rc < 0)
        return rc;
    if (!rfs_text_is_utf8((const char *)text, (size_t)length))
        return wire_fail(wire, -EINVAL, begin, REMEDY_COPY,
                         "a parameter's name is not UTF-8 text without NULs: the file is "
                         "damaged, or not a checkpoint");
    value->name = rfs_intern_add(tables->names, text, (size_t)length);
    if (value->name == RFS_NO_ID)
        return fail_memory(wire, begin);
    value->has_tag = true;
    wire->param = rfs_intern_text(tables->names, value->name);
    return 0;
}

static int read_body(struct wire *wire, const struct field *field, struct value *value)
{
    uint64_t length;

    value->has_body = true;
    value->type.kind = field->number == 2 ? RFS_TENSOR : RFS_MAP;
    const int rc = read_length(wire, value->end, &length);
    if (rc < 0)
        return rc;
    const uint64_t stop = wire->pos + length;
    if (value->type.kind == RFS_TENSOR)
        return read_tensor(wire, stop, value);
    value->map = (struct rfs_extent){wire->pos, length};
    return read_map(wire, stop, value);
}

static int read_field(struct wire *wire, struct rfs_tables *tables, const struct field *field,
                      struct value *value)
{
    if (field->number == 1 && field->type == LENGTH && !value->has_tag)
        return read_tag(wire, tables, value);
    if ((field->number == 2 || field->number == 3) && field->type == LENGTH && !value->has_body)
        return read_body(wire, field, value);
    return field->number > 3
               ? skip_field(wire, value->end, field->number, field->type)
               : wire_fail(wire, -EINVAL, field->begin, REMEDY_COPY,
                           "field %u of a parameter comes twice or has the wrong type",
                           field->number);
}

/*
 * Reads the fields from wire->pos to value->end; the caller has set begin and end and zeroed the
 * rest. The tag is interned and becomes wire->param.
 */
static int read_value(struct wire *wire, struct rfs_tables *tables, struct value *value)
{
    struct field field;
    int rc;

    while ((rc = next_field(wire, value->end, &field)) == 1)
        if ((rc = read_field(wire, tables, &field, value)) < 0)
            break;
    if (rc < 0)
        return rc;
    if (!value->has_tag || !value->has_body)
        return wire_fail(wire, -EINVAL, value->begin, REMEDY_COPY, "a value without a %s",
                         value->has_tag ? "tensor" : "name");
    if (value->type.kind == RFS_TENSOR && value->type.dtype == RFS_STR)
        value->type.kind = RFS_STRING;
    if (value->type.kind == RFS_MAP) {
        value->type.dtype = RFS_UINT8;
        value->extent = value->map;
    }
    return 0;
}

/* ---- a walk ---------------------------------------------------------------------------------- */

struct walk {
    struct wire wire;
    struct rfs_tables *tables;
    RFS_VEC(struct rfs_entry) entries;
    RFS_VEC(struct rfs_extent) extents;
    bool has_crc;
    bool pending;       /* the parameter whose first value is here may go on with the next one */
    struct value first; /* first value of the pending parameter */
    uint64_t sum;       /* bytes of its contents so far */
    uint64_t expected;  /* bytes of a tensor, by its dims */
    size_t first_extent;
    uint32_t extent_count; /* number of extents; 0 while there is one value only */
};

static const char *walk_name(const struct walk *walk, uint32_t name)
{
    return rfs_intern_text(walk->tables->names, name);
}

/* Computes the bytes of the tensor that begins with this value. */
static int tensor_bytes(const struct walk *walk, struct value *value, uint64_t *bytes)
{
    if (value->type.ndim == 1 && value->type.dims[0] == 0 && value->extent.bytes > 0)
        value->type.ndim = 0; /* the loader takes it for a scalar, too */
    return rfs_type_bytes(&value->type, bytes)
               ? 0
               : wire_fail(&walk->wire, -EINVAL, value->begin, REMEDY_COPY,
                           "the dimensions multiply to more than 2^63 bytes");
}

/* Adds the pending parameter to the index. */
static int flush(struct walk *walk)
{
    if (!walk->pending)
        return 0;
    const struct value *first = &walk->first;
    walk->pending = false;
    walk->wire.param = walk_name(walk, first->name);
    if (first->type.kind == RFS_TENSOR && walk->sum != walk->expected)
        return wire_fail(&walk->wire, -EINVAL, first->extent.offset, REMEDY_COPY,
                         "the tensor has %llu bytes, its dimensions and element type make it "
                         "%llu",
                         (unsigned long long)walk->sum, (unsigned long long)walk->expected);
    if (first->type.kind == RFS_STRING && walk->sum % 4 != 0)
        return wire_fail(&walk->wire, -EINVAL, first->extent.offset, REMEDY_COPY,
                         "the string has %llu bytes, which is not a multiple of 4",
                         (unsigned long long)walk->sum);
    struct rfs_type type = first->type;
    type.bytes = walk->sum;
    struct rfs_entry entry = {.offset = first->extent.offset, .name = first->name};
    entry.type = rfs_intern_add(walk->tables->types, &type, sizeof type);
    if (walk->extent_count > 0) {
        entry.extent = (uint32_t)walk->first_extent;
        entry.extent_count = walk->extent_count;
    }
    if (entry.type == RFS_NO_ID || walk->entries.n >= UINT32_MAX ||
        !RFS_PUSH(&walk->entries, entry))
        return fail_memory(&walk->wire, first->begin);
    return 0;
}

static int fail_duplicate(const struct walk *walk, uint64_t offset, uint64_t before)
{
    return wire_fail(&walk->wire, -EINVAL, offset, "save it again with each parameter once",
                     "the parameter comes twice, first at offset %llu", (unsigned long long)before);
}

/*
 * Says whether the value goes on with the pending tensor's contents; -EINVAL when it contradicts
 * it.
 */
static int continues(const struct walk *walk, const struct value *value)
{
    const struct value *first = &walk->first;
    if (!walk->pending || value->name != first->name)
        return 0;
    if (first->type.kind == RFS_TENSOR && value->type.kind == RFS_TENSOR &&
        walk->sum >= walk->expected)
        return fail_duplicate(walk, value->begin, first->begin);
    if (memcmp(&value->type, &first->type, sizeof value->type) != 0)
        return wire_fail(&walk->wire, -EINVAL, value->begin, REMEDY_COPY,
                         "this piece's dimensions or element type are not those of the piece "
                         "at offset %llu",
                         (unsigned long long)first->begin);
    return 1;
}

static int add_value(struct walk *walk, struct value *value)
{
    int rc = continues(walk, value);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        rc = flush(walk);
        walk->wire.param = walk_name(walk, value->name);
        if (rc == 0 && value->type.kind == RFS_TENSOR)
            rc = tensor_bytes(walk, value, &walk->expected);
        walk->first = *value;
        walk->pending = true;
        walk->sum = value->extent.bytes;
        walk->extent_count = 0;
        walk->first_extent = walk->extents.n;
        return rc;
    }
    const bool second = walk->extent_count == 0;
    if (walk->extents.n >= UINT32_MAX - 2 ||
        (second && !RFS_PUSH(&walk->extents, walk->first.extent)) ||
        !RFS_PUSH(&walk->extents, value->extent))
        return fail_memory(&walk->wire, value->begin);
    walk->extent_count += second ? 2 : 1;
    walk->sum += value->extent.bytes; /* no overflow: contents don't overlap in the file */
    return 0;
}

/* Returns 1 when the trailer, and nothing else, is left; 0 or -errno. */
static int at_trailer(struct walk *walk)
{
    struct wire *wire = &walk->wire;
    if (wire->from.size - wire->pos != TRAILER_BYTES)
        return 0;
    const uint64_t begin = wire->pos;
    const unsigned char *bytes;
    const int rc = read_bytes(wire, TRAILER_BYTES, &bytes);
    if (rc < 0)
        return rc;
    wire->pos = begin;
    return memcmp(bytes, "crc_num", 7) == 0;
}

static int walk_values(struct walk *walk)
{
    struct wire *wire = &walk->wire;
    while (wire->pos < wire->from.size) {
        int rc = at_trailer(walk);
        walk->has_crc = rc == 1;
        if (rc != 0)
            return rc < 0 ? rc : flush(walk);
        struct value value = {.begin = wire->pos};
        uint32_t field;
        enum wire_type type;
        uint64_t length;
        wire->param = NULL;
        rc = read_key(wire, FILE_LIMIT, &field, &type);
        if (rc == 0 && field == 1 && type == LENGTH) {
            rc = read_length(wire, FILE_LIMIT, &length);
            value.end = wire->pos + (rc == 0 ? length : 0);
            if (rc == 0)
                rc = read_value(wire, walk->tables, &value);
            if (rc == 0)
                rc = add_value(walk, &value);
        } else if (rc == 0 && field == 1) {
            rc = wire_fail(wire, -EINVAL, value.begin, REMEDY_COPY,
                           "not a parameter: the file is damaged, or not a checkpoint");
        } else if (rc == 0) {
            rc = skip_field(wire, FILE_LIMIT, field, type);
        }
        if (rc < 0)
            return rc;
    }
    return flush(walk);
}

/* Refuses files that are plainly of another kind, and names the kind. */
static int detect(struct walk *walk)
{
    struct wire *wire = &walk->wire;
    const unsigned char *head;
    if (wire->from.size == 0)
        return rfs_fail(wire->err, -ENODATA, RFS_IN(wire->from.file),
                        "copy or save it again; a full disk leaves such files",
                        "the file is empty");
    const size_t n = (size_t)rfs_min_u64(wire->from.size, 16);
    const int rc = read_bytes(wire, n, &head);
    if (rc < 0)
        return rc;
    wire->pos = 0;
    if (n >= 4 && rfs_cipher_detect(head) != RFS_NOT_ENCRYPTED)
        return rfs_fail(wire->err, -EINVAL, RFS_IN(wire->from.file),
                        "-o key_file=FILE, key_env=NAME or key_fd=N",
                        "the file is encrypted (%s), and there is no key",
                        rfs_cipher_name(rfs_cipher_detect(head)));
    if (n >= 16 && memcmp(head, "version https://", 16) == 0)
        return rfs_fail(wire->err, -EINVAL, RFS_IN(wire->from.file), "git lfs pull",
                        "the file is a Git LFS pointer, not the checkpoint itself");
    return 0;
}

/* Cuts an array to its length; keeps it when realloc doesn't want to. */
static void *trim(void *data, size_t n, size_t size)
{
    void *less = n > 0 ? realloc(data, n * size) : NULL;
    return less ? less : data;
}

static int finish(struct walk *walk, struct rfs_index **out)
{
    struct wire *wire = &walk->wire;
    const size_t n = walk->entries.n;
    wire->param = NULL;
    if (n == 0) /* MindSpore writes nothing but a checksum for an empty list */
        return rfs_fail(wire->err,
                        walk->has_crc && wire->from.size == TRAILER_BYTES ? -ENODATA : -EINVAL,
                        RFS_IN(wire->from.file), REMEDY_COPY, "the file holds no parameters");
    struct rfs_index *index = calloc(1, sizeof *index);
    if (!index)
        return rfs_fail_memory_of(wire->err, wire->from.file);
    index->n = n;
    index->entries = trim(walk->entries.data, n, sizeof *walk->entries.data);
    index->n_extents = walk->extents.n;
    index->extents = trim(walk->extents.data, walk->extents.n, sizeof *walk->extents.data);
    index->file_bytes = wire->from.size;
    index->has_crc = walk->has_crc;
    walk->entries.data = NULL;
    walk->extents.data = NULL;
    size_t a;
    size_t b;
    int rc = rfs_index_order_names(index, &a, &b);
    if (rc == 1) {
        wire->param = walk_name(walk, index->entries[b].name);
        rc = fail_duplicate(walk, index->entries[b].offset, index->entries[a].offset);
    } else if (rc < 0) {
        rc = rfs_fail_memory_of(wire->err, wire->from.file);
    }
    if (rc < 0)
        rfs_index_free(index);
    else
        *out = index;
    return rc;
}

int rfs_ckpt_walk(const struct rfs_bytes_source *from, struct rfs_tables *tables,
                  struct rfs_index **out, struct rfs_error *err)
{
    struct walk walk = {.tables = tables, .wire = {.from = *from, .err = err}};
    *out = NULL;
    int rc = from->size > FILE_LIMIT
                 ? rfs_fail(err, -EFBIG, RFS_IN(from->file), NULL, "the file is too large")
                 : detect(&walk);
    if (rc == 0)
        rc = walk_values(&walk);
    if (rc == 0)
        rc = finish(&walk, out);
    free(walk.entries.data);
    free(walk.extents.data);
    wire_release(&walk.wire);
    return rc;
}

/* ---- another file with the same headers ------------------------------------------------------ */

/*
 * An index keeps no headers, but where values follow each other as MindSpore writes them, the
 * header of a content begins where the content before it ends, and the index determines every byte
 * of it. So the bytes there are compared with the expected ones: when all agree, only the contents
 * can differ. Anything else (a map tensor, another order of fields, an unknown one) is left to a
 * walk.
 */

#define BATCH 32                   /* values a task, at least */
#define NEAR (UINT64_C(16) << 10)  /* contents up to this long are read rather than jumped over */
#define SPAN (UINT64_C(256) << 10) /* the most that is read at once, unless a name is longer */
/* For object storage, where a request takes as long as many bytes; 64 spans are 32 MiB. */
#define NEAR_REMOTE (UINT64_C(32) << 10)
#define SPAN_REMOTE (UINT64_C(512) << 10)

struct match {
    const struct rfs_bytes_source *from;
    const struct rfs_index *prediction;
    const struct rfs_tables *tables;
    size_t batch; /* values a task */
    uint64_t near, span;
};

/* A header and its content, in an index whose contents are visited in the order of the file. */
struct cursor {
    size_t entry;
    uint32_t extent; /* within the entry */
    const struct rfs_type *type;
    uint64_t header; /* where the header begins */
    struct rfs_extent content;
};

static const struct rfs_type *type_of(const struct match *match, size_t i)
{
    return rfs_intern_bytes(match->tables->types, match->prediction->entries[i].type, NULL);
}

static struct rfs_extent extent_of(const struct match *match, size_t i, uint32_t extent,
                                   const struct rfs_type *type)
{
    const struct rfs_entry *entry = &match->prediction->entries[i];
    return entry->extent_count > 0 ? match->prediction->extents[entry->extent + extent]
                                   : (struct rfs_extent){entry->offset, type->bytes};
}

static struct cursor cursor_at(const struct match *match, size_t i)
{
    struct cursor cursor = {.entry = i, .type = type_of(match, i)};
    cursor.content = extent_of(match, i, 0, cursor.type);
    if (i > 0) {
        const uint32_t count = match->prediction->entries[i - 1].extent_count;
        const struct rfs_extent before =
            extent_of(match, i - 1, count > 0 ? count - 1 : 0, type_of(match, i - 1));
        cursor.header = before.offset + before.bytes;
    }
    return cursor;
}

/* Steps to the next content; false past the value with number STOP - 1. */
static bool cursor_next(const struct match *match, struct cursor *cursor, size_t stop)
{
    cursor->header = cursor->content.offset + cursor->content.bytes;
    if (++cursor->extent >= match->prediction->entries[cursor->entry].extent_count) {
        cursor->extent = 0;
        if (++cursor->entry >= stop)
            return false;
        cursor->type = type_of(match, cursor->entry);
    }
    cursor->content = extent_of(match, cursor->entry, cursor->extent, cursor->type);
    return true;
}

/* Returns how many bytes a varint takes. */
static size_t varint_bytes(uint64_t value)
{
    return (70U - (unsigned)__builtin_clzll(value | 1)) / 7;
}

/* Puts a field's key and its number. Returns where they end. */
static unsigned char *put_field(unsigned char *p, unsigned char key, uint64_t value)
{
    *p++ = key;
    for (; value >= 0x80; value >>= 7)
        *p++ = (unsigned char)(value | 0x80);
    *p++ = (unsigned char)value;
    return p;
}

#define FIELD 11 /* bytes of a field of one number, at most */
#define DTYPE 32 /* more than the bytes of a dtype's name */

/*
 * The end of a header, behind the name: all values of a type have the same one, which is made once
 * for a task.
 */
struct tail {
    const struct rfs_type *type; /* NULL: not made yet */
    uint64_t content;            /* bytes */
    uint64_t follows;            /* bytes of the value from here on, the content's too */
    size_t n;
    unsigned char bytes[(RFS_MAX_DIMS + 5) * FIELD + DTYPE];
};

/* Makes a tail; ZERO: with dims [0], for a scalar. */
static void make_tail(const struct rfs_type *type, uint64_t content, bool zero, struct tail *out)
{
    const char *dtype = rfs_dtype_name((enum rfs_dtype)type->dtype);
    const size_t dtype_n = strnlen(dtype, DTYPE);
    uint64_t tensor = zero ? 2 : 0;
    for (unsigned i = 0; i < type->ndim; i++)
        tensor += 1 + varint_bytes(type->dims[i]);
    tensor += 2 + dtype_n + 1 + varint_bytes(content) + content;

    unsigned char *p = put_field(out->bytes, 0x12, tensor);
    if (zero)
        p = put_field(p, 0x08, 0);
    for (unsigned i = 0; i < type->ndim; i++)
        p = put_field(p, 0x08, type->dims[i]);
    p = put_field(p, 0x12, dtype_n);
    memcpy(p, dtype, dtype_n);
    p = put_field(p + dtype_n, 0x1a, content);
    out->type = type;
    out->content = content;
    out->follows = 1 + varint_bytes(tensor) + tensor;
    out->n = (size_t)(p - out->bytes);
}

#define TAILS 8 /* of a task: as many types in turn are made once */

static const struct tail *tail_of(struct tail *tails, const struct cursor *cursor)
{
    struct tail *tail = &tails[(uintptr_t)cursor->type / sizeof *cursor->type % TAILS];
    if (tail->type != cursor->type || tail->content != cursor->content.bytes)
        make_tail(cursor->type, cursor->content.bytes, false, tail);
    return tail;
}

/* Says whether these N bytes are the header of the value with that name and tail. */
static bool is_header(const char *name, size_t name_n, const struct tail *tail,
                      const unsigned char *bytes, size_t n)
{
    const uint64_t value = 1 + varint_bytes(name_n) + name_n + tail->follows;
    unsigned char front[2 * FIELD];
    const size_t front_n = (size_t)(put_field(put_field(front, 0x0a, value), 0x0a, name_n) - front);

    return n == front_n + name_n + tail->n && memcmp(bytes, front, front_n) == 0 &&
           memcmp(bytes + front_n, name, name_n) == 0 &&
           memcmp(bytes + front_n + name_n, tail->bytes, tail->n) == 0;
}

/*
 * Says whether these bytes, up to the content, are the header of a value; a scalar's may be written
 * in two ways. TAILS, zeroes at first, keeps those that were made.
 */
static bool is_value(const struct match *match, const struct cursor *cursor, struct tail *tails,
                     const unsigned char *bytes)
{
    const struct rfs_type *type = cursor->type;
    const size_t n = (size_t)(cursor->content.offset - cursor->header);
    size_t name_n;
    const char *name = rfs_intern_bytes(match->tables->names,
                                        match->prediction->entries[cursor->entry].name, &name_n);

    if (is_header(name, name_n, tail_of(tails, cursor), bytes, n))
        return true;
    if (type->kind != RFS_TENSOR || type->ndim != 0 || cursor->content.bytes != type->bytes)
        return false;
    struct tail zero;
    make_tail(type, cursor->content.bytes, true, &zero);
    return is_header(name, name_n, &zero, bytes, n);
}

/* Returns where one read from this header on should end: over near contents, at a header's end. */
static uint64_t span_end(const struct match *match, struct cursor cursor, size_t stop)
{
    const uint64_t begin = cursor.header;
    uint64_t end = cursor.content.offset;
    while (cursor.content.bytes <= match->near && cursor_next(match, &cursor, stop) &&
           cursor.content.offset >= end && cursor.content.offset - begin <= match->span)
        end = cursor.content.offset;
    return end;
}

/* Compares the headers of task I: 0 when they agree, 1 when one does not, or -errno. */
static int match_batch(void *ctx, size_t i)
{
    const struct match *match = ctx;
    const size_t first = i * match->batch;
    const size_t stop = (size_t)rfs_min_u64(match->prediction->n, first + match->batch);
    struct cursor cursor = cursor_at(match, first);
    unsigned char *buf = NULL;
    size_t cap = 0;
    uint64_t start = 0;
    uint64_t end = 0;
    struct tail tails[TAILS] = {0};
    int rc = 0;
    do {
        const uint64_t header = cursor.header;
        if (cursor.content.offset <= header ||
            cursor.content.offset > match->prediction->file_bytes) {
            rc = 1;
            break;
        }
        if (header < start || cursor.content.offset > end) {
            start = header;
            end = span_end(match, cursor, stop);
            const size_t n = (size_t)(end - start);
            if (n > cap) {
                rfs_secret_wipe(buf, cap);
                free(buf);
                buf = malloc(n);
                cap = buf ? n : 0;
            }
            if (!buf) {
                rc = -ENOMEM;
                break;
            }
            rc = rfs_bytes_source_read(match->from, buf, n, start);
            if (rc < 0)
                break;
        }
        rc = !is_value(match, &cursor, tails, buf + (header - start));
    } while (rc == 0 && cursor_next(match, &cursor, stop));
    rfs_secret_wipe(buf, cap); /* contents lie between headers, and files may be encrypted */
    free(buf);
    return rc;
}

/* Says whether the file ends as the prediction: 1, 0 or -errno. */
static int match_end(const struct match *match)
{
    const struct rfs_index *prediction = match->prediction;
    struct cursor last = cursor_at(match, prediction->n - 1);
    while (cursor_next(match, &last, prediction->n))
        continue;
    const uint64_t left = prediction->file_bytes - last.header;
    if (left != (prediction->has_crc ? TRAILER_BYTES : 0))
        return 0;
    char bytes[7];
    const int rc =
        left > 0 ? rfs_bytes_source_read(match->from, bytes, sizeof bytes, last.header) : 0;
    if (rc < 0)
        return rc;
    return left == 0 || memcmp(bytes, "crc_num", sizeof bytes) == 0;
}

/* Says whether the file may be like the prediction by its size, and ends as it: 1, 0 or -errno. */
static int match_size(const struct match *match)
{
    const struct rfs_index *prediction = match->prediction;
    if (match->from->size != prediction->file_bytes || prediction->n == 0)
        return 0;
    for (size_t i = 0; i < prediction->n; i++) {
        if (type_of(match, i)->kind == RFS_MAP)
            return 0;
    }
    return match_end(match);
}

/* Compares the header of entry I: 1, 0 or -errno. */
static int match_one(const struct match *match, size_t i)
{
    const struct cursor cursor = cursor_at(match, i);
    if (cursor.content.offset <= cursor.header ||
        cursor.content.offset > match->prediction->file_bytes)
        return 0;
    const size_t n = (size_t)(cursor.content.offset - cursor.header);
    unsigned char *buf = malloc(n);
    if (!buf)
        return -ENOMEM;
    struct tail tails[TAILS] = {0};
    int rc = rfs_bytes_source_read(match->from, buf, n, cursor.header)
                 ?: is_value(match, &cursor, tails, buf);
    rfs_secret_wipe(buf, n);
    free(buf);
    return rc;
}

int rfs_ckpt_resembles(const struct rfs_bytes_source *from, const struct rfs_index *prediction,
                       struct rfs_tables *tables, size_t samples)
{
    const struct match match = {.from = from, .prediction = prediction, .tables = tables};
    int rc = match_size(&match);
    for (size_t k = 0; rc == 1 && k < samples; k++)
        rc = match_one(&match, k * (prediction->n - 1) / (samples - 1));
    return rc;
}

int rfs_ckpt_matches(const struct rfs_bytes_source *from, const struct rfs_index *prediction,
                     struct rfs_tables *tables, struct rfs_pool *pool)
{
    struct match match = {.from = from, .prediction = prediction, .tables = tables};
    int rc = match_size(&match);
    if (rc != 1)
        return rc;
    const bool remote = rfs_pool_expects_waits(pool);
    match.near = remote ? NEAR_REMOTE : NEAR;
    match.span = remote ? SPAN_REMOTE : SPAN;
    /* A task has as many values as one read takes, where they are small. */
    const uint64_t each = rfs_max_u64(prediction->file_bytes / prediction->n, 1);
    const uint64_t fit = match.span / each;
    match.batch = (size_t)(!remote              ? rfs_max_u64(BATCH, fit / BATCH * BATCH)
                           : each <= match.near ? fit
                                                : 1);
    const size_t tasks = rfs_ceil_u64(prediction->n, match.batch);
    rc = rfs_pool_for(pool, tasks, match_batch, &match);
    return rc < 0 ? rc : rc == 0;
}
