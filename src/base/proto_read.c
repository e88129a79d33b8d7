/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proto_read.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

struct rfs_proto rfs_proto_begin(const void *data, size_t n)
{
    const unsigned char *at = data;

    return (struct rfs_proto){at, at + n, false};
}

static bool fail(struct rfs_proto *message)
{
    message->wrong = true;
    return false;
}

static bool take_varint(struct rfs_proto *message, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 70 && message->at < message->end; shift += 7) {
        const unsigned char byte = *message->at++;
        *value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (!(byte & 0x80))
            return true;
    }
    return fail(message);
}

static bool take_bytes(struct rfs_proto *message, uint64_t n, struct rfs_proto *inside)
{
    if (n > (uint64_t)(message->end - message->at))
        return fail(message);
    *inside = rfs_proto_begin(message->at, (size_t)n);
    message->at += n;
    return true;
}

bool rfs_proto_next(struct rfs_proto *message, struct rfs_proto_field *field)
{
    uint64_t key;
    uint64_t length;

    *field = (struct rfs_proto_field){0};
    if (message->wrong || message->at == message->end || !take_varint(message, &key))
        return false;
    if (key >> 3 == 0 || key > UINT32_MAX)
        return fail(message);
    field->number = (uint32_t)(key >> 3);
    field->type = (unsigned)(key & 7);
    switch (field->type) {
    case VARINT:
        return take_varint(message, &field->value);
    case FIXED64:
        return take_bytes(message, 8, &field->inside);
    case BYTES:
        return take_varint(message, &length) && take_bytes(message, length, &field->inside);
    case FIXED32:
        return take_bytes(message, 4, &field->inside);
    default:
        return fail(message);
    }
}

bool rfs_proto_number(struct rfs_proto_field *field, uint64_t *number)
{
    if (field->type == BYTES)
        return field->inside.at < field->inside.end && !field->inside.wrong &&
               take_varint(&field->inside, number);
    if (field->type != VARINT)
        return false;
    *number = field->value;
    field->type = BYTES; /* it is used up */
    return true;
}

size_t rfs_proto_count(struct rfs_proto message, uint32_t number)
{
    struct rfs_proto_field field;
    size_t n = 0;

    while (rfs_proto_next(&message, &field))
        n += field.number == number;
    return n;
}

static int find(const struct rfs_proto_shape *shape, uint32_t number)
{
    for (int i = 0; shape->fields[i].number != 0; i++)
        if (shape->fields[i].number == number)
            return i;
    return -1;
}

static bool are_numbers(struct rfs_proto_field field)
{
    uint64_t number;

    if (field.type == VARINT)
        return true;
    while (rfs_proto_number(&field, &number))
        ;
    return field.type == BYTES && !field.inside.wrong;
}

bool rfs_proto_has_shape(struct rfs_proto message, const struct rfs_proto_shape *shape)
{
    struct rfs_proto_field field;
    unsigned seen = 0;

    while (rfs_proto_next(&message, &field)) {
        const int i = find(shape, field.number);
        bool good = true;
        if (i < 0)
            continue;
        switch (shape->fields[i].kind) {
        case RFS_PROTO_NUMBER:
            good = field.type == VARINT;
            break;
        case RFS_PROTO_NUMBERS:
            good = are_numbers(field);
            break;
        case RFS_PROTO_BYTES:
            good = field.type == BYTES;
            break;
        case RFS_PROTO_MESSAGES:
            good = field.type == BYTES && !(shape->fields[i].required && (seen >> i & 1)) &&
                   rfs_proto_has_shape(field.inside, shape->fields[i].inside);
            break;
        }
        if (!good)
            return false;
        seen |= 1u << i;
    }
    for (int i = 0; shape->fields[i].number != 0; i++)
        if (shape->fields[i].required && !(seen >> i & 1))
            return false;
    return !message.wrong;
}

bool rfs_proto_has_others(struct rfs_proto message, const struct rfs_proto_shape *shape)
{
    struct rfs_proto_field field;

    while (rfs_proto_next(&message, &field))
        if (find(shape, field.number) < 0)
            return true;
    return false;
}
