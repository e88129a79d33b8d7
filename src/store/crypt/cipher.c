/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save_checkpoint(enc_key=…, enc_mode=…) cuts the file in blocks of 64 MiB (the last may be
 * shorter) and encrypts each by itself; numbers are little-endian int32s:
 *
 *   file         = block { block } [ trailer ]
 *   AES-GCM:       d8 5e 3a 7f   tag (16)   length   16   iv (16)   n   cipher text (n)
 *   AES-CBC:       d9 5e 3a 7f              length   16   iv (16)   n   cipher text (n)
 *   SM4-CBC:       da 5e 3a 7f              length   16   iv (16)   n   cipher text (n)
 *   of MindSpore 1, whatever the mode:
 *                  d8 5e 3a 7f              length   16   iv (16)   n   cipher text (n)
 *   trailer      = "crc_num" 00 (10)        when crc_check was asked for as well; MindSpore's loader
 *                                           does not take such a file
 *
 * length counts the bytes after itself. GCM takes the first 12 bytes of iv for its nonce, and n is
 * the length of the plain text. CBC pads each block by PKCS#7: 1 to 16 bytes, each equal to their
 * number. MindSpore 1 did not store GCM's tag, which leaves counter mode: the nonce, and a
 * big-endian counter from 2 on.
 *
 * Nothing ties the blocks of a file to each other or to the file. Source:
 * mindspore/core/utils/crypto.cc and train/serialization.py, and files that MindSpore 2.10 wrote;
 * the format of MindSpore 1 is from its source alone.
 */
#include "store/crypt/cipher.h"

#include "base/cleanup.h"
#include "base/options.h"

#define TAG_BYTES 16u
#define IV_BYTES 16u
#define HEADER_BYTES (4u + 4u + 4u + IV_BYTES + 4u)
#define TAGGED_HEADER_BYTES (HEADER_BYTES + TAG_BYTES)
#define TRAILER_BYTES 17u

#define REMEDY_COPY "compare the file with its original, or save it again"

/* The first bytes of magics; the others are 5e 3a 7f. */
static const unsigned char magics[] = {
    [RFS_AES_GCM] = 0xd8, [RFS_AES_CBC] = 0xd9, [RFS_SM4_CBC] = 0xda};

const char *rfs_cipher_name(enum rfs_cipher_mode mode)
{
    return rfs_option_word("key_mode", (int)mode - 1);
}

enum rfs_cipher_mode rfs_cipher_detect(const unsigned char head[4])
{
    for (int mode = RFS_AES_GCM; mode <= RFS_SM4_CBC; mode++)
        if (head[0] == magics[mode] && memcmp(head + 1, "\x5e\x3a\x7f", 3) == 0)
            return (enum rfs_cipher_mode)mode;
    return RFS_NOT_ENCRYPTED;
}

uint32_t rfs_cipher_text_bytes(const struct rfs_cipher *cipher, uint32_t number)
{
    const bool pads = cipher->mode == RFS_AES_CBC || cipher->mode == RFS_SM4_CBC;
    return number + 1 < cipher->blocks ? cipher->block_bytes + (pads ? RFS_CIPHER_UNIT : 0)
                                       : cipher->last_text_bytes;
}

/* One block, as its header has it. */
struct block {
    uint64_t offset; /* in the file */
    uint64_t left;   /* bytes from there to the end of the file */
    const unsigned char *iv;
    uint32_t length, iv_bytes, content;
};

static uint32_t little(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void parse(const unsigned char *header, bool tagged, struct block *block)
{
    const unsigned char *at = header + 4 + (tagged ? TAG_BYTES : 0);
    block->length = little(at);
    block->iv_bytes = little(at + 4);
    block->iv = at + 8;
    block->content = little(at + 8 + IV_BYTES);
}

/* How many bytes of cipher text a full block has. */
static uint32_t full_block(enum rfs_cipher_mode mode, uint32_t block_bytes)
{
    return block_bytes + (mode == RFS_AES_CBC || mode == RFS_SM4_CBC ? RFS_CIPHER_UNIT : 0);
}

struct scan {
    const struct rfs_cipher_input *input;
    struct rfs_error *err;
    struct rfs_cipher cipher;
    unsigned char first;            /* byte of all magics */
    unsigned char (*ivs)[IV_BYTES]; /* of all blocks, with their numbers; owned */
    uint32_t cap;
};

#define FAIL(scan, at, ...)                                                                        \
    rfs_fail((scan)->err, -EINVAL, RFS_AT((scan)->input->path, at), REMEDY_COPY, __VA_ARGS__)

static int read_at(const struct rfs_cipher_input *input, void *buf, size_t n, uint64_t offset)
{
    struct iovec span = {buf, n};
    return input->read(input->ctx, &span, 1, offset);
}

/* Whether the lengths agree with each other, which those of another kind of block do not. */
static bool is_sound(const struct block *block)
{
    return block->iv_bytes == IV_BYTES && block->content > 0 && block->content <= INT32_MAX &&
           block->length == 4 + IV_BYTES + 4 + (uint64_t)block->content;
}

/* Which mode the file is of, by its first block's header of N bytes. */
static int find_mode(struct scan *scan, const unsigned char *header, size_t n,
                     enum rfs_cipher_mode wanted)
{
    const char *path = scan->input->path;
    enum rfs_cipher_mode mode = rfs_cipher_detect(header);
    struct block tagged, bare;

    if (mode == RFS_NOT_ENCRYPTED)
        return rfs_fail(scan->err, -EINVAL, RFS_IN(path),
                        "leave the key out if no file is encrypted, or encrypt this one as well",
                        "the file is not encrypted, but a key is given");
    if (mode == RFS_AES_GCM && n >= HEADER_BYTES) {
        parse(header, false, &bare);
        if (n == TAGGED_HEADER_BYTES)
            parse(header, true, &tagged);
        if (is_sound(&bare) && (n < TAGGED_HEADER_BYTES || !is_sound(&tagged))) {
            if (wanted != RFS_AES_CBC && wanted != RFS_AES_GCM_UNTAGGED)
                return rfs_fail(scan->err, -EINVAL, RFS_IN(path),
                                "key_mode=AES-CBC or key_mode=AES-GCM-untagged, whichever it was "
                                "saved with",
                                "the file is encrypted as by MindSpore 1: it does not name its "
                                "cipher, and changes are not detected");
            mode = wanted;
        }
    }
    if (wanted != RFS_NOT_ENCRYPTED && mode != wanted)
        return rfs_fail(scan->err, -EINVAL, RFS_IN(path), NULL,
                        "the file is encrypted by %s, but key_mode is %s", rfs_cipher_name(mode),
                        rfs_cipher_name(wanted));
    scan->first = header[0];
    scan->cipher.mode = mode;
    scan->cipher.header_bytes = mode == RFS_AES_GCM ? TAGGED_HEADER_BYTES : HEADER_BYTES;
    return 0;
}

/* The lengths of block NUMBER, and whether it may be as short as it is. */
static int check_block(const struct scan *scan, uint32_t number, const struct block *block)
{
    const struct rfs_cipher *cipher = &scan->cipher;
    const uint32_t full = full_block(cipher->mode, cipher->block_bytes);
    const bool pads = full != cipher->block_bytes;

    if (block->iv_bytes != IV_BYTES)
        return FAIL(scan, block->offset, "block %u has an IV of %d bytes rather than 16", number,
                    (int32_t)block->iv_bytes);
    if (block->content == 0 || block->content > full || (pads && block->content % RFS_CIPHER_UNIT))
        return FAIL(scan, block->offset, "block %u cannot have %d bytes of cipher text", number,
                    (int32_t)block->content);
    if (!is_sound(block))
        return FAIL(scan, block->offset, "the two lengths of block %u contradict each other",
                    number);
    if (block->left - cipher->header_bytes < block->content)
        return FAIL(scan, block->offset, "block %u is cut off: the file is truncated", number);
    return 0;
}

/* 1 when the LEFT bytes at OFFSET are the trailer. */
static int at_trailer(const struct scan *scan, uint64_t offset, uint64_t left)
{
    static const unsigned char trailer[TRAILER_BYTES] = "crc_num";
    unsigned char bytes[TRAILER_BYTES];

    if (left != TRAILER_BYTES)
        return 0;
    const int rc = read_at(scan->input, bytes, TRAILER_BYTES, offset);
    return rc < 0 ? rc : memcmp(bytes, trailer, TRAILER_BYTES) == 0;
}

static int keep_iv(struct scan *scan, uint32_t number, const unsigned char *iv)
{
    if (number == scan->cap) {
        const uint32_t cap = number > 0 ? number * 2 : 16;
        void *ivs = cap > number ? realloc(scan->ivs, (size_t)cap * IV_BYTES) : NULL;
        if (!ivs)
            return rfs_fail_memory_of(scan->err, scan->input->path);
        scan->ivs = ivs;
        scan->cap = cap;
    }
    memcpy(scan->ivs[number], iv, IV_BYTES);
    return 0;
}

/*
 * Reads the header of block NUMBER, with at most LEFT bytes in the file, and finds the mode by the
 * first block.
 */
static int take_block(struct scan *scan, uint32_t number, enum rfs_cipher_mode wanted,
                      struct block *block)
{
    unsigned char header[TAGGED_HEADER_BYTES] = {0};
    size_t n = number == 0 ? TAGGED_HEADER_BYTES : scan->cipher.header_bytes;
    if (n > block->left)
        n = (size_t)block->left;
    int rc = read_at(scan->input, header, n, block->offset);
    if (rc == 0 && number == 0)
        rc = find_mode(scan, header, n, wanted);
    if (rc < 0)
        return rc;
    const struct rfs_cipher *cipher = &scan->cipher;
    if (n < cipher->header_bytes)
        return FAIL(scan, block->offset,
                    "%zu bytes that are not block %u: the file is truncated, or has garbage at its "
                    "end",
                    n, number);
    if (header[0] != scan->first || memcmp(header + 1, "\x5e\x3a\x7f", 3) != 0)
        return FAIL(scan, block->offset, "block %u does not begin as one of %s", number,
                    rfs_cipher_name(cipher->mode));
    parse(header, cipher->mode == RFS_AES_GCM, block);
    rc = check_block(scan, number, block);
    return rc < 0 ? rc : keep_iv(scan, number, block->iv);
}

static int scan_blocks(struct scan *scan, enum rfs_cipher_mode wanted)
{
    struct rfs_cipher *cipher = &scan->cipher;
    const uint64_t size = scan->input->size;
    uint64_t at = 0;

    while (at < size) {
        struct block block = {.offset = at, .left = size - at};
        int rc = cipher->blocks > 0 ? at_trailer(scan, at, block.left) : 0;
        if (rc != 0)
            return rc < 0 ? rc : 0;
        const uint32_t full = full_block(cipher->mode, cipher->block_bytes);
        if (cipher->blocks > 0 && cipher->last_text_bytes != full)
            return FAIL(scan, at,
                        "block %u is short, but more follows: blocks are missing, or in another "
                        "order",
                        cipher->blocks - 1);
        rc = take_block(scan, cipher->blocks, wanted, &block);
        if (rc < 0)
            return rc;
        cipher->last_text_bytes = block.content;
        cipher->blocks++;
        at += cipher->header_bytes + (uint64_t)block.content;
    }
    return 0;
}

static int compare_ivs(const void *a, const void *b, void *ctx)
{
    const unsigned char(*ivs)[IV_BYTES] = ctx;
    return memcmp(ivs[*(const uint32_t *)a], ivs[*(const uint32_t *)b], IV_BYTES);
}

/* IVs are random: two that are the same are of one block and its copy. */
static int find_copy(struct scan *scan)
{
    const uint32_t n = scan->cipher.blocks;
    RFS_FREE uint32_t *order = malloc(n * sizeof *order);
    if (!order)
        return rfs_fail_memory_of(scan->err, scan->input->path);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, n, sizeof *order, compare_ivs, scan->ivs);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t a = order[i - 1], b = order[i];
        if (memcmp(scan->ivs[a], scan->ivs[b], IV_BYTES) != 0)
            continue;
        return FAIL(scan, rfs_cipher_offset(&scan->cipher, a > b ? a : b),
                    "block %u is a copy of block %u", a > b ? a : b, a > b ? b : a);
    }
    return 0;
}

int rfs_cipher_scan(const struct rfs_cipher_input *input, enum rfs_cipher_mode wanted,
                    uint32_t block_bytes, struct rfs_cipher *out, struct rfs_error *err)
{
    struct scan scan = {.input = input, .err = err, .cipher = {.block_bytes = block_bytes}};
    if (input->size == 0)
        return rfs_fail(err, -EINVAL, RFS_IN(input->path),
                        "copy or save it again; a full disk leaves such files",
                        "the file is empty");
    int rc = scan_blocks(&scan, wanted) ?: find_copy(&scan);
    free(scan.ivs);
    if (rc < 0)
        return rc;
    *out = scan.cipher;
    if (full_block(out->mode, block_bytes) == block_bytes) {
        out->last_plain = out->last_text_bytes;
        out->plain_bytes = (uint64_t)(out->blocks - 1) * block_bytes + out->last_plain;
    }
    return 0;
}
