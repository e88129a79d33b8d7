/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads encrypted files as if they were plain: the state that all files of a view share, its
 * decrypted blocks, and the bytes of one file. AES-GCM goes by whole blocks, which are
 * authenticated before a byte is given out and stay for a while; the other modes decrypt only the
 * requested bytes.
 *
 * Threads: all functions but new and free.
 */
#pragma once

#include "base/log.h"
#include "store/crypt/cipher.h"
#include "store/crypt/key.h"

/* ---- decrypted blocks ---- */

/*
 * Decrypted blocks of files, at most BUDGET bytes of them, those that are being made and those that
 * are being wiped among them. A block is decrypted once for all that want it: the second waits. The
 * least recently used goes for the next; memory of the right size is used again, other memory is
 * wiped and given back.
 *
 * A block that one thread has made is not taken away for another's within RFS_BLOCK_TURN, so that
 * threads which together want more than there is room for work one after the other, rather than
 * decrypt a block for every few bytes. A thread may replace its own, unless another thread has been
 * waiting for RFS_BLOCK_PATIENCE.
 *
 * One lock; it is not held across I/O, decryption, wiping or copying. A thread that holds a block
 * must not ask for another: all that are held are given back soon, whatever else is waited for.
 */
struct rfs_blocks;

#define RFS_BLOCK_TURN 100     /* milliseconds */
#define RFS_BLOCK_PATIENCE 400 /* milliseconds */
/* The most blocks, however small they are: the system does not map any number of them. */
#define RFS_BLOCKS_MOST 4096

/* Makes an empty set of blocks. NULL when out of memory. */
struct rfs_blocks *rfs_blocks_new(uint64_t budget);
/* Frees all blocks; nothing may be held. NULL is fine. */
void rfs_blocks_free(struct rfs_blocks *blocks);

/* A block that somebody holds. */
struct rfs_block_held {
    const unsigned char *data;
    void *own; /* the set's */
};

/*
 * Makes the plain text in DATA, which is undefined before. 0, or -errno, which every thread gets
 * that waits for it; DATA is then wiped.
 */
typedef int rfs_block_make(void *ctx, unsigned char *data);

/*
 * Gets block NUMBER of file FILE, of BYTES > 0, which must be equal each time. 0 with *out to be
 * given back by rfs_blocks_put, or -errno: make's, -ENOMEM, or -EFBIG for a block larger than the
 * budget.
 */
int rfs_blocks_get(struct rfs_blocks *blocks, uint32_t file, uint32_t number, size_t bytes,
                   rfs_block_make *make, void *ctx, struct rfs_block_held *out);
void rfs_blocks_put(struct rfs_blocks *blocks, const struct rfs_block_held *held);

/* Wipes and gives back all blocks that nobody holds. */
void rfs_blocks_drop(struct rfs_blocks *blocks);

struct rfs_blocks_counters {
    uint64_t budget, bytes, made, evictions;
};
void rfs_blocks_count(struct rfs_blocks *blocks, struct rfs_blocks_counters *out);

/* ---- files ---- */

struct rfs_encrypted;

/*
 * Makes the state of a view. KEY and LOG (may be NULL) are borrowed. Decrypted blocks take at most
 * BUDGET bytes: RFS_CIPHER_BLOCK at least, or large blocks fail (-EFBIG). NULL when out of memory.
 */
struct rfs_encrypted *rfs_encrypted_new(const struct rfs_key *key, uint64_t budget,
                                        struct rfs_log *log);
void rfs_encrypted_free(struct rfs_encrypted *encrypted);

/*
 * Sets the plain bytes of a block, a multiple of 16: tests have files with shorter ones. To be
 * called before the first file is opened.
 */
void rfs_encrypted_set_block(struct rfs_encrypted *encrypted, uint32_t block_bytes);

struct rfs_blocks *rfs_encrypted_blocks(struct rfs_encrypted *encrypted);

/*
 * Finds the structure of a file, malloc'ed and the caller's. Reads its headers and the data that
 * rfs_cipher_measure reads. The first file of a mode that cannot detect changed bytes is logged. 0
 * or -errno; *err is filled where the file, the key or this process is at fault, but not for read
 * errors.
 */
int rfs_encrypted_open(struct rfs_encrypted *encrypted, const struct rfs_cipher_input *input,
                       struct rfs_cipher **out, struct rfs_error *err);

/*
 * Reads SIZE plain bytes at OFFSET, which are within the file. 0, or -errno as rfs_encrypted_open
 * gives it.
 */
int rfs_encrypted_pread(struct rfs_encrypted *encrypted, const struct rfs_cipher *cipher,
                        const struct rfs_cipher_input *input, void *buf, size_t size,
                        uint64_t offset, struct rfs_error *err);
