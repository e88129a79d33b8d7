/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protobuf wire format over a file that is read in small windows: bytes that a window holds already
 * are not read again, and a position may jump over any length without reading it. Not thread-safe.
 *
 * Failures fill err with the offset and wire->param, so that callers just pass them on.
 */
#pragma once

#include "base/error.h"
#include "formats/walker.h"

#define RFS_WIRE_WINDOW 4096u       /* bytes of an ordinary window */
#define RFS_WIRE_LONGEST (1u << 20) /* bytes of the longest name that is read */
#define RFS_WIRE_GROUPS 64          /* nesting of unknown groups that is followed */

enum rfs_wire_type {
    RFS_VARINT = 0,
    RFS_I64 = 1,
    RFS_LEN = 2,
    RFS_SGROUP = 3,
    RFS_EGROUP = 4,
    RFS_I32 = 5
};

struct rfs_wire {
    rfs_read_fn *read;
    void *ctx;
    uint64_t size; /* of the file, bytes */
    uint64_t pos;
    const char *file;
    const char *param; /* the value at hand, once its name is known; borrowed */
    struct rfs_error *err;
    unsigned char *buf; /* owned */
    size_t cap;
    uint64_t start; /* of the window in the file */
    size_t len;     /* of the window */
};

void rfs_wire_release(struct rfs_wire *wire);

/* rfs_fail for OFFSET in the file and the value at hand. */
int rfs_wire_fail(const struct rfs_wire *wire, int code, uint64_t offset, const char *remedy,
                  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/*
 * END is where the message around it ends; it may lie beyond the end of a truncated file, which is
 * then reported when something there is wanted.
 */
int rfs_wire_varint(struct rfs_wire *wire, uint64_t end, uint64_t *value);
/* A field's number and type. */
int rfs_wire_key(struct rfs_wire *wire, uint64_t end, uint32_t *field, enum rfs_wire_type *type);
/* A field whose key was read, which begins at BEGIN. */
struct rfs_wire_field {
    uint64_t begin;
    uint32_t number;
    enum rfs_wire_type type;
};
/* The next field of a message: 1, 0 at its end, or -errno. */
int rfs_wire_next(struct rfs_wire *wire, uint64_t end, struct rfs_wire_field *field);
/* The length of a field; it ends at wire->pos + *length, which is within END. */
int rfs_wire_length(struct rfs_wire *wire, uint64_t end, uint64_t *length);
/* LENGTH bytes at the position, which moves behind them. *bytes is valid until the next call. */
int rfs_wire_bytes(struct rfs_wire *wire, uint64_t length, const unsigned char **bytes);
/* Jumps over an unknown field whose key was just read. */
int rfs_wire_skip(struct rfs_wire *wire, uint64_t end, uint32_t field, enum rfs_wire_type type);
