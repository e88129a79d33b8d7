/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protobuf messages in memory, read from front to back, for files that may be large and hostile:
 * nothing is allocated, and nesting is limited by the requested shape. (The contents of checkpoints
 * are scanned in their files: source/ckpt/wire.h.)
 *
 *   field   = varint(number << 3 | type) payload
 *   payload = type 0: varint | 1: 8 bytes | 2: varint(length) bytes | 5: 4 bytes; groups (3, 4) are wrong
 */
#pragma once

#include "base/std.h"

/* The rest of a message, or of packed numbers. Borrowed. */
struct rfs_proto {
    const unsigned char *at, *end;
    bool wrong; /* it is invalid; at is the place */
};

struct rfs_proto_field {
    uint32_t number;
    unsigned type;
    uint64_t value;          /* of type 0 */
    struct rfs_proto inside; /* of type 2 */
};

struct rfs_proto rfs_proto_begin(const void *data, size_t n);
/* The next field. False at the end, or when the message is wrong. */
bool rfs_proto_next(struct rfs_proto *message, struct rfs_proto_field *field);
/*
 * The next number of a field of numbers, which may be packed: *FIELD is used up. False at the end,
 * or when it is invalid.
 */
bool rfs_proto_number(struct rfs_proto_field *field, uint64_t *number);

/* How many fields of that number a message has. O(bytes). */
size_t rfs_proto_count(struct rfs_proto message, uint32_t number);

/* The fields of a message. Others are passed over. */
struct rfs_proto_shape {
    struct {
        uint32_t number; /* 0 ends the list */
        enum { RFS_PROTO_NUMBER, RFS_PROTO_NUMBERS, RFS_PROTO_BYTES, RFS_PROTO_MESSAGES } kind;
        bool required; /* a message that is required is there once */
        const struct rfs_proto_shape *inside;
    } fields[9];
};
/* Whether a message and all in it are of that shape. O(bytes). */
bool rfs_proto_has_shape(struct rfs_proto message, const struct rfs_proto_shape *shape);
/* Whether it has a field that the shape lacks; not counting messages in it. */
bool rfs_proto_has_others(struct rfs_proto message, const struct rfs_proto_shape *shape);
