/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The form of a saved file, in the byte order of the machine (the mark tells another's):
 *
 *   0   "rfsindex" or "rfssizes"
 *   8   u32 version of the format, u32 0x01020304
 *   16  u64 where the table begins, u64 its bytes, u64 its XXH3-64
 *   40  the body: data whose places, lengths and checksums are in the table
 *   …   the table, up to the end: the key (u32 length, text), then the kind's own fields
 *
 * index.c and view/saved_sizes.c draw the tables.
 */
#pragma once

#include "base/bytes.h"

#define RFS_SAVED_VERSION 2
#define RFS_SAVED_START 40
#define RFS_SAVED_MARK UINT32_C(0x01020304)
#define RFS_SAVED_TABLE (UINT64_C(256) << 20) /* no larger table is read or written */

enum rfs_saved_kind { RFS_SAVED_INDEX, RFS_SAVED_SIZES };
/* The first bytes of such a file, and the ending of its name. */
const char *rfs_saved_magic(enum rfs_saved_kind kind);

/* Bytes being written; whether that failed is looked at in the end. */
void rfs_saved_put_u32(struct rfs_bytes *out, uint32_t value);
void rfs_saved_put_u64(struct rfs_bytes *out, uint64_t value);
/* Its length (u32) before it. */
void rfs_saved_put_text(struct rfs_bytes *out, const char *text, size_t n);

/* Bytes being read. Once something is not there, everything is 0 and bad is set. */
struct rfs_saved_in {
    const unsigned char *p;
    size_t left;
    bool bad;
};
/* The next N bytes, or NULL. */
const void *rfs_saved_take(struct rfs_saved_in *in, size_t n);
uint32_t rfs_saved_take_u32(struct rfs_saved_in *in);
uint64_t rfs_saved_take_u64(struct rfs_saved_in *in);
const char *rfs_saved_take_text(struct rfs_saved_in *in, size_t *n);
/*
 * A count of items of at least LEAST bytes. More than the rest has room for is bad, and read as 0.
 */
uint32_t rfs_saved_take_count(struct rfs_saved_in *in, size_t least);

/* A file whose table matches its checksum and has the requested key. */
struct rfs_saved_file {
    int fd; /* -1: it is in memory */
    const unsigned char *memory;
    uint64_t size;
    unsigned char *table;   /* owned */
    struct rfs_saved_in in; /* in the table, after the key */
};
/*
 * Takes FD, or with -1 the SIZE bytes of MEMORY, which last as long as *file. False when it is no
 * such file: the descriptor is closed then.
 */
bool rfs_saved_parse(enum rfs_saved_kind kind, const char *key, int fd, const void *memory,
                     uint64_t size, struct rfs_saved_file *file);
/*
 * N bytes at OFFSET whose XXH3-64 is HASH, in memory that the caller owns; NULL when they are
 * missing or do not match.
 */
void *rfs_saved_body(const struct rfs_saved_file *file, uint64_t offset, uint64_t n, uint64_t hash);
void rfs_saved_end(struct rfs_saved_file *file);
