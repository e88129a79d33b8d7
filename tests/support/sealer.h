/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encrypts as save_checkpoint does, by OpenSSL, written apart from what decrypts. All failures
 * abort.
 */
#ifndef TESTS_SUPPORT_SEALER_H
#define TESTS_SUPPORT_SEALER_H

#include "store/crypt/cipher.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seal {
    enum rfs_cipher_mode mode;
    const unsigned char *key;
    size_t key_bytes;
    size_t block_bytes; /* plain, of each block but the last */
    bool old;           /* as MindSpore 1: one magic, no tag */
};

/* Room that the encrypted form of N bytes takes at most. */
size_t seal_room(const struct seal *seal, size_t n);
/* Seals N bytes, by IVs that SALT gives; how many bytes it made. */
size_t seal(const struct seal *seal, const unsigned char *plain, size_t n, unsigned salt,
            unsigned char *out);

/* Seals the file at PATH in its place. A key of NULL is seal_key's. */
void seal_file(const char *path, const struct seal *seal, unsigned salt);

/* Key bytes that are printable, without a newline at the end; the same for the same N. */
const unsigned char *seal_key(size_t n);

#endif
