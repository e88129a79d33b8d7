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
#include "store/blocks.h"
#include "store/crypt/cipher.h"
#include "store/crypt/key.h"

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
