/* SPDX-License-Identifier: Apache-2.0 */
#include "store/encrypted.h"

#include "base/checked.h"
#include "base/pages.h"

#include <stdatomic.h>

struct rfs_encrypted {
    const struct rfs_key *key;
    struct rfs_log *log;
    struct rfs_blocks *blocks;
    uint32_t block_bytes;
    atomic_uint next;   /* id of a file */
    atomic_bool warned; /* that a mode does not authenticate */
};

struct rfs_encrypted *rfs_encrypted_new(const struct rfs_key *key, uint64_t budget,
                                        struct rfs_log *log)
{
    struct rfs_encrypted *encrypted = calloc(1, sizeof *encrypted);
    if (!encrypted)
        return NULL;
    rfs_pages_wipe_all();
    encrypted->key = key;
    encrypted->log = log;
    encrypted->block_bytes = RFS_CIPHER_BLOCK;
    encrypted->blocks = rfs_blocks_new(budget);
    if (!encrypted->blocks) {
        free(encrypted);
        return NULL;
    }
    return encrypted;
}

void rfs_encrypted_free(struct rfs_encrypted *encrypted)
{
    if (!encrypted)
        return;
    rfs_blocks_free(encrypted->blocks);
    free(encrypted);
}

void rfs_encrypted_set_block(struct rfs_encrypted *encrypted, uint32_t block_bytes)
{
    encrypted->block_bytes = block_bytes;
}

struct rfs_blocks *rfs_encrypted_blocks(struct rfs_encrypted *encrypted)
{
    return encrypted->blocks;
}

static void warn(struct rfs_encrypted *encrypted, const struct rfs_cipher *cipher, const char *path)
{
    if (cipher->mode == RFS_AES_GCM || atomic_exchange(&encrypted->warned, true))
        return;
    rfs_log(encrypted->log, RFS_WARNING,
            "%s: the file is encrypted by %s, which does not detect changes: a writer of the file "
            "can change the values in it; try: AES-GCM",
            path, rfs_cipher_name(cipher->mode));
}

int rfs_encrypted_open(struct rfs_encrypted *encrypted, const struct rfs_cipher_input *input,
                       struct rfs_cipher **out, struct rfs_error *err)
{
    struct rfs_cipher cipher;
    const struct rfs_key *key = encrypted->key;
    const int rc = rfs_cipher_scan(input, key->mode, encrypted->block_bytes, &cipher, err)
                       ?: rfs_cipher_measure(&cipher, input, key, err);
    if (rc < 0)
        return rc;
    *out = malloc(sizeof cipher);
    if (!*out)
        return rfs_fail_memory(err);
    cipher.id = atomic_fetch_add(&encrypted->next, 1);
    memcpy(*out, &cipher, sizeof cipher);
    warn(encrypted, &cipher, input->path);
    return 0;
}

/* The arguments of making a block. */
struct work {
    struct rfs_encrypted *encrypted;
    const struct rfs_cipher *cipher;
    const struct rfs_cipher_input *input;
    uint32_t number;
    struct rfs_error *err;
};

static int open_block(void *ctx, unsigned char *data, size_t *bytes)
{
    const struct work *work = ctx;
    (void)bytes;
    return rfs_cipher_open_block(work->cipher, work->input, work->encrypted->key, work->number,
                                 data, work->err);
}

/* Reads a part of one block. */
static int read_part(struct work *work, void *buf, size_t size, uint32_t offset)
{
    const struct rfs_cipher *cipher = work->cipher;
    struct rfs_blocks *blocks = work->encrypted->blocks;
    struct rfs_block_held held;
    if (cipher->mode != RFS_AES_GCM)
        return rfs_cipher_pread(cipher, work->input, work->encrypted->key, work->number, buf, size,
                                offset, work->err);
    const int rc = rfs_blocks_get(blocks, cipher->id, work->number,
                                  rfs_cipher_plain(cipher, work->number), open_block, work, &held);
    if (rc < 0)
        return rc;
    memcpy(buf, held.data + offset, size);
    rfs_blocks_put(blocks, &held);
    return 0;
}

int rfs_encrypted_pread(struct rfs_encrypted *encrypted, const struct rfs_cipher *cipher,
                        const struct rfs_cipher_input *input, void *buf, size_t size,
                        uint64_t offset, struct rfs_error *err)
{
    struct work work = {encrypted, cipher, input, 0, err};
    unsigned char *out = buf;
    int rc = 0;
    while (rc == 0 && size > 0) {
        const uint32_t within = (uint32_t)(offset % cipher->block_bytes);
        work.number = (uint32_t)(offset / cipher->block_bytes);
        const uint32_t plain = rfs_cipher_plain(cipher, work.number);
        const size_t take = (size_t)rfs_min_u64(size, plain - within);
        rc = read_part(&work, out, take, within);
        out += take;
        size -= take;
        offset += take;
    }
    return rc;
}
