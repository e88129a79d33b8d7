/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads items of files that are compressed by zstd, each by itself, as if they were plain.
 *
 * A file with such items has only these. Its plain bytes are counted as if each item had as many
 * as it may have, one item behind the other in the order in which they are added:
 *
 *     stored   ....[item 0][item 1]...[item 2]
 *     plain    [item 0 ......  ][item 1 .........][item 2 ..... ]
 *
 * So a place in an item is one number, as in any other file. How many bytes an item really has is
 * known once it is decompressed. This happens at the first use of one of its bytes, as a whole,
 * into a block that stays for a while (blocks.h). Meanwhile the block has the compressed bytes,
 * too, so it is as large as both. zstd's window is the block itself.
 *
 * Cost: 24 bytes for each item, and 100 KB for each that is being decompressed. A place is found by
 * bisection.
 *
 * Threads: rfs_packed_read and all that only looks; adding, from one thread before.
 */
#pragma once

#include "base/error.h"
#include "base/order.h"
#include "base/vec.h"
#include "store/blocks.h"

/* The place of an item. */
struct rfs_packed_item {
    uint64_t begin;         /* first plain byte; the item may have those up to the next item's */
    uint64_t stored, bytes; /* in the file */
};

/* A file with compressed items. */
struct rfs_packed {
    RFS_VEC(struct rfs_packed_item) items; /* ascending by begin */
    uint64_t end;                          /* of the plain bytes */
};

/* The most bytes that zstd makes of so many, roughly; UINT64_MAX for more than there can be. */
uint64_t rfs_packed_bound(uint64_t plain);

/*
 * Adds an item of BYTES at offset STORED, which has at most MOST > 0 plain bytes. *BEGIN is the
 * first of these. 0, -ENOMEM, or -EFBIG: the file has more plain bytes than a file can have.
 */
int rfs_packed_add(struct rfs_packed *packed, uint64_t stored, uint64_t bytes, uint64_t most,
                   uint64_t *begin);

/* Returns the number of the item that has the plain byte AT, which is before the end. */
static inline size_t rfs_packed_number(const struct rfs_packed *packed, uint64_t at)
{
    return RFS_BISECT(i, packed->items.n, packed->items.data[i].begin > at) - 1;
}

/* A file that is being read. */
struct rfs_packed_input {
    /* Reads bytes of the file as it is stored: 0 or -errno. */
    int (*read)(void *ctx, void *buf, size_t size, uint64_t offset);
    void *ctx;
    uint64_t file_bytes;
    const char *path; /* for messages */
    uint32_t file;    /* number in BLOCKS */
    struct rfs_blocks *blocks;
};

/*
 * Copies SIZE plain bytes from OFFSET on; with BUF NULL, gives in *BYTES how many the item at
 * OFFSET has. 0; -ESTALE where items have no such bytes; -EINVAL for an item that is damaged, or
 * -EFBIG for one that the blocks have no room for, with *err filled; read's error, -ENOMEM or
 * -EINTR.
 */
int rfs_packed_read(const struct rfs_packed *packed, const struct rfs_packed_input *input,
                    void *buf, size_t size, uint64_t offset, uint64_t *bytes,
                    struct rfs_error *err);
