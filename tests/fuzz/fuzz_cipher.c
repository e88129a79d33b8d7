/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an encrypted file, with blocks of 64 bytes: its headers by any wanted mode, and then
 * all that can be read of it by one key.
 */
#include "store/crypt/cipher.h"
#include "store/crypt/key.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

FUZZ_GOALS("a block of GCM", "a block of another mode");

#define BLOCK 64u

static int read_input(void *ctx, struct iovec *spans, int n, uint64_t offset)
{
    const struct fuzz_input *input = ctx;
    REQUIRE(n > 0);
    for (int i = 0; i < n; i++) {
        REQUIRE(spans[i].iov_len > 0 && offset <= input->size &&
                spans[i].iov_len <= input->size - offset);
        memcpy(spans[i].iov_base, input->data + offset, spans[i].iov_len);
        offset += spans[i].iov_len;
    }
    return 0;
}

/* The key that the corpus is encrypted with, of 16 bytes. */
static const struct rfs_key *the_key(void)
{
    static struct rfs_key *key;
    int ends[2];
    if (key)
        return key;
    REQUIRE(pipe(ends) == 0 && write(ends[1], "ReshardFS tests:", 16) == 16 && close(ends[1]) == 0);
    const struct rfs_key_config config = {NULL, NULL, ends[0], RFS_NOT_ENCRYPTED};
    REQUIRE(rfs_key_load(&config, NULL, &key, NULL) == 0);
    return key;
}

static void check_shape(const struct rfs_cipher *cipher, uint64_t size)
{
    REQUIRE(cipher->mode > RFS_NOT_ENCRYPTED && cipher->mode < RFS_CIPHER_COUNT);
    REQUIRE(cipher->blocks > 0 && cipher->last_text_bytes > 0);
    const uint64_t end = rfs_cipher_offset(cipher, cipher->blocks - 1) + cipher->header_bytes +
                         rfs_cipher_text_bytes(cipher, cipher->blocks - 1);
    REQUIRE(end == size || end + 17 == size);
}

/* Each block as a whole, and in parts that give the same. */
static void read_block(const struct rfs_cipher *cipher, const struct rfs_cipher_input *input,
                       uint32_t number)
{
    unsigned char whole[BLOCK];
    unsigned char part[BLOCK];
    struct rfs_error err = {0};
    const uint32_t n = rfs_cipher_plain(cipher, number);
    REQUIRE(n > 0 && n <= BLOCK);
    if (cipher->mode == RFS_AES_GCM) {
        const int rc = rfs_cipher_open_block(cipher, input, the_key(), number, whole, &err);
        REQUIRE(rc == 0 || rc == -EBADMSG);
        if (require_result(rc, &err))
            fuzz_reached(0);
        return;
    }
    const int rc = rfs_cipher_pread(cipher, input, the_key(), number, whole, n, 0, &err);
    REQUIRE(rc == 0 || rc == -EBADMSG);
    if (require_result(rc, &err))
        fuzz_reached(1);
    for (uint32_t from = 0; rc == 0 && from < n; from += 7) {
        const uint32_t size = 1 + (from * 5 + n) % (n - from);
        REQUIRE(rfs_cipher_pread(cipher, input, the_key(), number, part, size, from, &err) == 0);
        REQUIRE(memcmp(part, whole + from, size) == 0);
    }
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct fuzz_input file = {data, size};
    const struct rfs_cipher_input input = {read_input, &file, size, "f.ckpt"};
    for (int wanted = RFS_NOT_ENCRYPTED; wanted < RFS_CIPHER_COUNT; wanted++) {
        struct rfs_cipher cipher;
        struct rfs_error err = {0};
        int rc = rfs_cipher_scan(&input, (enum rfs_cipher_mode)wanted, BLOCK, &cipher, &err);
        REQUIRE(rc == 0 || rc == -EINVAL);
        require_result(rc, &err);
        if (rc < 0)
            continue;
        REQUIRE(wanted == RFS_NOT_ENCRYPTED || (int)cipher.mode == wanted);
        check_shape(&cipher, size);
        rc = rfs_cipher_measure(&cipher, &input, the_key(), &err);
        REQUIRE(rc == 0 || rc == -EBADMSG);
        require_result(rc, &err);
        if (rc < 0)
            continue;
        REQUIRE(cipher.plain_bytes > 0 && cipher.plain_bytes <= (uint64_t)cipher.blocks * BLOCK);
        for (uint32_t i = 0; i < cipher.blocks; i++)
            read_block(&cipher, &input, i);
    }
}
