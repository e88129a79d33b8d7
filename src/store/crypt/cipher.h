/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encrypted .ckpt files as MindSpore writes them: how to recognize them, where their blocks lie,
 * and a block's plain bytes. cipher.c draws the format.
 *
 * Threads: all functions; they keep nothing.
 */
#pragma once

#include "store/crypt/key.h"

#include <sys/uio.h>

/* Returns "AES-GCM" and so on, as MindSpore's dec_mode; NULL for RFS_NOT_ENCRYPTED. */
const char *rfs_cipher_name(enum rfs_cipher_mode mode);
/* Finds the mode by the first 4 bytes of a file. */
enum rfs_cipher_mode rfs_cipher_detect(const unsigned char head[4]);

/* The bytes of plain text in every block of a file but the last. */
#define RFS_CIPHER_BLOCK (UINT32_C(64) << 20)
/* The unit of CBC; of CTR too, here. */
#define RFS_CIPHER_UNIT 16u

/*
 * Fills N spans, one after the other, with bytes of the file from OFFSET on; may change the spans.
 * 0, or -errno, which is passed on.
 */
typedef int rfs_cipher_read_fn(void *ctx, struct iovec *spans, int n, uint64_t offset);
struct rfs_cipher_input {
    rfs_cipher_read_fn *read;
    void *ctx;
    uint64_t size;    /* of the file, bytes */
    const char *path; /* for messages */
};

/* The layout of an encrypted file. */
struct rfs_cipher {
    uint32_t id; /* its user's */
    enum rfs_cipher_mode mode;
    uint32_t header_bytes;    /* of each block */
    uint32_t block_bytes;     /* plain, of each block but the last */
    uint32_t blocks;          /* at least 1 */
    uint32_t last_text_bytes; /* bytes of the last block's cipher text */
    uint32_t last_plain;      /* at least 1; with CBC not known, and 0, before rfs_cipher_measure */
    uint64_t plain_bytes;     /* of the file; as last_plain */
};

/*
 * Reads and checks the headers of all blocks, and nothing else. WANTED is the mode that the file
 * must have, or RFS_NOT_ENCRYPTED for the mode that it states; files of MindSpore 1 state none.
 * BLOCK_BYTES is RFS_CIPHER_BLOCK, but in tests. 0; -EINVAL with *err filled for an invalid
 * encrypted file, or another mode; -ENOMEM; or -errno of the input, without *err.
 */
int rfs_cipher_scan(const struct rfs_cipher_input *input, enum rfs_cipher_mode wanted,
                    uint32_t block_bytes, struct rfs_cipher *out, struct rfs_error *err);

/* Returns where the header of block NUMBER begins in the file. */
static inline uint64_t rfs_cipher_offset(const struct rfs_cipher *cipher, uint32_t number)
{
    const uint32_t padding =
        cipher->mode == RFS_AES_CBC || cipher->mode == RFS_SM4_CBC ? RFS_CIPHER_UNIT : 0;
    return number * ((uint64_t)cipher->header_bytes + cipher->block_bytes + padding);
}
/* Returns the bytes of the plain text of block NUMBER. */
static inline uint32_t rfs_cipher_plain(const struct rfs_cipher *cipher, uint32_t number)
{
    return number + 1 < cipher->blocks ? cipher->block_bytes : cipher->last_plain;
}
/*
 * Returns the bytes of the cipher text of block NUMBER. Other files than cipher.c call it for tests
 * alone.
 */
uint32_t rfs_cipher_text_bytes(const struct rfs_cipher *cipher, uint32_t number);

/*
 * The functions below give -EBADMSG with *err filled when the bytes are not those that the key
 * makes of a sound file (the key is wrong, or they were changed), -ENOTSUP with *err when this
 * OpenSSL lacks the cipher, -ENOMEM, or -errno of the input, without *err.
 */

/*
 * Completes the result of rfs_cipher_scan; -EINVAL with *err filled where the key's length does not
 * suit the mode. Where nothing authenticates, the last block's padding
 * and the file's first bytes are decrypted and looked at, so that a wrong key is found now.
 */
int rfs_cipher_measure(struct rfs_cipher *cipher, const struct rfs_cipher_input *input,
                       const struct rfs_key *key, struct rfs_error *err);

/*
 * Decrypts a whole block of an AES-GCM file into DATA, as long as its plain text, which is
 * undefined on failure.
 */
int rfs_cipher_open_block(const struct rfs_cipher *cipher, const struct rfs_cipher_input *input,
                          const struct rfs_key *key, uint32_t number, unsigned char *data,
                          struct rfs_error *err);

/*
 * Decrypts SIZE > 0 plain bytes at OFFSET in block NUMBER of a file of another mode into BUF. Reads
 * no more of the file than the units that they lie in, one before, and the padding if they end with
 * the block.
 */
int rfs_cipher_pread(const struct rfs_cipher *cipher, const struct rfs_cipher_input *input,
                     const struct rfs_key *key, uint32_t number, void *buf, size_t size,
                     uint32_t offset, struct rfs_error *err);

/*
 * Puts OpenSSL's contexts, which have key schedules, into memory that is locked and left out of
 * core files from now on. That takes the place of OpenSSL's allocator in the whole process, so only
 * programs do it, and before they have used OpenSSL: it is false otherwise, and nothing is changed.
 */
bool rfs_cipher_guard(void);
/* Loads the library's configuration and the modules that it names. */
void rfs_cipher_load(void);

/* Returns the library that decrypts, a constant: "OpenSSL 3.0.17 1 Jul 2025". */
const char *rfs_cipher_library(void);
