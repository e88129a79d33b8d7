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
 *   trailer      = "crc_num" 00 (10)        when crc_check was asked for as well; the loader of
 *                                           MindSpore does not take such a file
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

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/options.h"
#include "base/order.h"
#include "base/secret.h"
#include "store/crypt/key.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>

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

/* Says whether blocks are padded to whole units. */
static bool pads(const struct rfs_cipher *cipher)
{
    return cipher->mode == RFS_AES_CBC || cipher->mode == RFS_SM4_CBC;
}

/* Returns the bytes of cipher text of a full block. */
static uint32_t full_block(const struct rfs_cipher *cipher)
{
    return cipher->block_bytes + (pads(cipher) ? RFS_CIPHER_UNIT : 0);
}

uint32_t rfs_cipher_text_bytes(const struct rfs_cipher *cipher, uint32_t number)
{
    return number + 1 < cipher->blocks ? full_block(cipher) : cipher->last_text_bytes;
}

/* A block, as its header has it. */
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

/* Says whether the lengths agree with each other, which those of another kind of block do not. */
static bool is_sound(const struct block *block)
{
    return block->iv_bytes == IV_BYTES && block->content > 0 && block->content <= INT32_MAX &&
           block->length == 4 + IV_BYTES + 4 + (uint64_t)block->content;
}

/* Finds the mode of the file by its first block's header of N bytes. */
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

/* Checks the lengths of block NUMBER, and whether it may be as short as it is. */
static int check_block(const struct scan *scan, uint32_t number, const struct block *block)
{
    const struct rfs_cipher *cipher = &scan->cipher;
    const uint32_t full = full_block(cipher);

    if (block->iv_bytes != IV_BYTES)
        return FAIL(scan, block->offset, "block %u has an IV of %d bytes rather than 16", number,
                    (int32_t)block->iv_bytes);
    if (block->content == 0 || block->content > full ||
        (pads(cipher) && block->content % RFS_CIPHER_UNIT))
        return FAIL(scan, block->offset, "block %u cannot have %d bytes of cipher text", number,
                    (int32_t)block->content);
    if (!is_sound(block))
        return FAIL(scan, block->offset, "the two lengths of block %u contradict each other",
                    number);
    if (block->left - cipher->header_bytes < block->content)
        return FAIL(scan, block->offset, "block %u is cut off: the file is truncated", number);
    return 0;
}

/* Says whether the LEFT bytes at OFFSET are the trailer: 1 or 0, or -errno. */
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
        const uint32_t full = full_block(cipher);
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

/* Refuses a block that is a copy: IVs are random, so no two blocks have equal ones. */
static int find_copy(struct scan *scan)
{
    const uint32_t n = scan->cipher.blocks;
    RFS_FREE uint32_t *order = malloc(n * sizeof *order);
    if (!order)
        return rfs_fail_memory_of(scan->err, scan->input->path);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    RFS_SORT_BY(order, n, compare_ivs, scan->ivs);
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
    if (!pads(out)) {
        out->last_plain = out->last_text_bytes;
        out->plain_bytes = (uint64_t)(out->blocks - 1) * block_bytes + out->last_plain;
    }
    return 0;
}

/* ---- plain bytes, by OpenSSL ----------------------------------------------------------------- */

#define UNIT RFS_CIPHER_UNIT
#define NONCE_BYTES 12u
#define CHUNK (UINT32_C(1) << 20) /* read and decrypted at once */

#define REMEDY_KEY "check the key, or compare the file with its original"

/* The parameters of a call. */
struct job {
    const struct rfs_cipher *cipher;
    const struct rfs_cipher_input *input;
    const struct rfs_key *key;
    uint32_t number; /* of the block */
    struct rfs_error *err;
};

static int read_spans(const struct job *job, struct iovec *spans, int n, uint64_t offset)
{
    return job->input->read(job->input->ctx, spans, n, offset);
}

static int fail_doubt(const struct job *job, const char *what)
{
    const uint64_t at = rfs_cipher_offset(job->cipher, job->number);
    return rfs_fail(job->err, -EBADMSG, RFS_AT(job->input->path, at), REMEDY_KEY,
                    "block %u %s: the key is wrong, or the file was changed", job->number, what);
}

static const EVP_CIPHER *find_cipher(enum rfs_cipher_mode mode, size_t key_bytes)
{
    const unsigned i = key_bytes == 16 ? 0 : key_bytes == 24 ? 1 : 2;
    static const EVP_CIPHER *(*const found[RFS_CIPHER_COUNT][3])(void) = {
        [RFS_AES_GCM] = {EVP_aes_128_gcm, EVP_aes_192_gcm, EVP_aes_256_gcm},
        [RFS_AES_CBC] = {EVP_aes_128_cbc, EVP_aes_192_cbc, EVP_aes_256_cbc},
#ifndef OPENSSL_NO_SM4
        [RFS_SM4_CBC] = {EVP_sm4_cbc, NULL, NULL},
#endif
        [RFS_AES_GCM_UNTAGGED] = {EVP_aes_128_ctr, EVP_aes_192_ctr, EVP_aes_256_ctr},
    };
    return found[mode][i] ? found[mode][i]() : NULL;
}

/* Checks that the key's length suits the mode. */
static int check_length(const struct rfs_cipher *cipher, const struct rfs_key *key,
                        const char *path, struct rfs_error *err)
{
    if (cipher->mode != RFS_SM4_CBC || key->n == 16)
        return 0;
    return rfs_fail(err, -EINVAL, RFS_IN(path), "the key that the file was saved with",
                    "the file is encrypted by SM4-CBC, which takes a key of 16 bytes, and the key "
                    "given has %zu",
                    key->n);
}

static int fail_unsupported(const struct job *job)
{
    return rfs_fail(job->err, -ENOTSUP, RFS_IN(job->input->path), "another build of OpenSSL",
                    "OpenSSL here does not do %s with a key of %zu bytes",
                    rfs_cipher_name(job->cipher->mode), job->key->n);
}

/*
 * Reports that a call of OpenSSL failed which no input can make fail: there is no memory, or this
 * library has no such cipher.
 */
static int fail_library(const struct job *job)
{
    bool lacks = false, memory = false;
    for (unsigned long code; (code = ERR_get_error()) != 0;) {
        memory |= ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
#ifdef ERR_R_UNSUPPORTED
        lacks |= ERR_GET_REASON(code) == ERR_R_UNSUPPORTED;
#endif
    }
    if (lacks && !memory)
        return fail_unsupported(job);
    return rfs_fail_memory_of(job->err, job->input->path);
}

/* Set while a context is made: memory that this thread allocates is a part of it. */
static _Thread_local bool making;

static void *take_memory(size_t n, const char *file, int line)
{
    void *at = making ? rfs_secret_slots_take(n) : NULL;

    (void)file;
    (void)line;
    return at ? at : malloc(n);
}

static void give_memory(void *at, const char *file, int line)
{
    (void)file;
    (void)line;
    if (rfs_secret_slots_has(at))
        rfs_secret_slots_give(at);
    else
        free(at);
}

static void *change_memory(void *at, size_t n, const char *file, int line)
{
    if (!rfs_secret_slots_has(at))
        return realloc(at, n);
    void *moved = n > 0 ? take_memory(n, file, line) : NULL;
    if (moved)
        memcpy(moved, at, n < RFS_SECRET_SLOT_BYTES ? n : RFS_SECRET_SLOT_BYTES);
    if (moved || n == 0)
        give_memory(at, file, line);
    return moved;
}

bool rfs_cipher_guard(void)
{
    if (!rfs_secret_slots_open() ||
        CRYPTO_set_mem_functions(take_memory, change_memory, give_memory) != 1)
        return false;
    /* Memory that OpenSSL keeps for good is not for the slots. */
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    if (context)
        (void)EVP_DecryptInit_ex(context, EVP_aes_128_gcm(), NULL, NULL, NULL);
    EVP_CIPHER_CTX_free(context);
    return true;
}

void rfs_cipher_load(void)
{
    (void)OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL);
}

/*
 * Makes a context that decrypts from IV on, to be freed by the caller. 0 or -errno with *err
 * filled.
 */
static int begin(const struct job *job, const unsigned char *iv, EVP_CIPHER_CTX **out)
{
    const EVP_CIPHER *type = find_cipher(job->cipher->mode, job->key->n);
    ERR_clear_error();
    rfs_key_hold(job->key);
    making = true;
    *out = EVP_CIPHER_CTX_new();
    const bool made = *out && type &&
                      EVP_DecryptInit_ex(*out, type, NULL, job->key->bytes, iv) == 1 &&
                      EVP_CIPHER_CTX_set_padding(*out, 0) == 1;
    making = false;
    if (made)
        return 0;
    EVP_CIPHER_CTX_free(*out);
    *out = NULL;
    return type ? fail_library(job) : fail_unsupported(job);
}

static int decrypt(const struct job *job, EVP_CIPHER_CTX *context, unsigned char *at, size_t n)
{
    int got = 0;
    if (n > 0 && (EVP_DecryptUpdate(context, at, &got, at, (int)n) != 1 || got != (int)n))
        return fail_library(job);
    return 0;
}

/* Decrypts a block behind its header, chunk by chunk, each while it is in the processor's cache. */
static int decrypt_chunks(const struct job *job, EVP_CIPHER_CTX *context, unsigned char *data)
{
    const uint32_t n = rfs_cipher_text_bytes(job->cipher, job->number);
    const uint64_t at = rfs_cipher_offset(job->cipher, job->number) + job->cipher->header_bytes;
    for (uint32_t done = 0; done < n;) {
        const uint32_t take = (uint32_t)rfs_min_u64(CHUNK, n - done);
        struct iovec span = {data + done, take};
        int rc = read_spans(job, &span, 1, at + done) ?: decrypt(job, context, data + done, take);
        if (rc < 0)
            return rc;
        done += take;
    }
    return 0;
}

int rfs_cipher_open_block(const struct rfs_cipher *cipher, const struct rfs_cipher_input *input,
                          const struct rfs_key *key, uint32_t number, unsigned char *data,
                          struct rfs_error *err)
{
    const struct job job = {cipher, input, key, number, err};
    unsigned char header[48]; /* magic 4, tag 16, length 4, 16, iv 16, n 4 */
    struct iovec span = {header, sizeof header};
    EVP_CIPHER_CTX *context = NULL;
    int rc = read_spans(&job, &span, 1, rfs_cipher_offset(cipher, number))
            ?: begin(&job, header + 28, &context)
            ?: decrypt_chunks(&job, context, data);
    if (rc == 0 && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, header + 4) != 1)
        rc = fail_library(&job);
    int none = 0;
    if (rc == 0 && EVP_DecryptFinal_ex(context, data, &none) != 1)
        rc = fail_doubt(&job, "fails its AES-GCM check");
    EVP_CIPHER_CTX_free(context);
    return rc;
}

/*
 * The units of a block that a read touches. Whole ones are decrypted in the caller's buffer; the
 * first and the last of them by themselves where only a part is wanted, and the padding's.
 */
struct units {
    uint32_t first;       /* unit */
    bool head;            /* the first is wanted in part */
    uint32_t whole_bytes; /* of whole units after it */
    bool last;            /* one more after those: wanted in part, or the padding */
    uint32_t last_bytes;
    bool checked; /* the padding is in the last unit, or in the head if there is no last */
};

static struct units find_units(const struct job *job, uint32_t offset, uint32_t size)
{
    const uint32_t plain = rfs_cipher_plain(job->cipher, job->number);
    const uint32_t end = offset + size;
    struct units units = {.first = offset / UNIT, .head = offset % UNIT != 0};
    const uint32_t from = units.first + units.head, to = end / UNIT;
    const bool tail = to >= from && end % UNIT != 0;
    units.checked = pads(job->cipher) && end == plain;
    units.last = tail || (units.checked && plain % UNIT == 0);
    units.whole_bytes = to > from ? (to - from) * UNIT : 0;
    const uint32_t left = rfs_cipher_text_bytes(job->cipher, job->number) - to * UNIT;
    units.last_bytes = units.last ? (uint32_t)rfs_min_u64(UNIT, left) : 0;
    if (units.head && to < from) { /* all in one unit */
        units.last = false;
        units.last_bytes = 0;
    }
    return units;
}

/*
 * Gives the IV of counter mode at unit UNIT of the block: the first 12 bytes of the block's, and
 * the count.
 */
static int counter_iv(const struct job *job, uint32_t unit, unsigned char iv[UNIT])
{
    const uint64_t text = rfs_cipher_offset(job->cipher, job->number) + job->cipher->header_bytes;
    struct iovec span = {iv, NONCE_BYTES};
    const int rc = read_spans(job, &span, 1, text - 4 - UNIT);
    for (unsigned i = 0; i < 4; i++)
        iv[NONCE_BYTES + i] = (unsigned char)((unit + 2) >> (24 - 8 * i));
    return rc;
}

static bool is_padding(const unsigned char unit[UNIT], uint32_t padding)
{
    for (uint32_t i = UNIT - padding; i < UNIT; i++)
        if (unit[i] != padding)
            return false;
    return true;
}

/* Memory of one read, beyond the caller's. */
struct edges {
    unsigned char before[UNIT + 4]; /* the first unit, or iv and n, behind which it counts */
    unsigned char head[UNIT], last[UNIT];
};

static int read_units(const struct job *job, const struct units *units, struct edges *edges,
                      unsigned char *whole)
{
    const uint64_t text = rfs_cipher_offset(job->cipher, job->number) + job->cipher->header_bytes;
    const bool chained = pads(job->cipher);
    const uint32_t before = !chained ? 0 : units->first == 0 ? UNIT + 4 : UNIT;
    const uint32_t head = (uint32_t)rfs_min_u64(
        UNIT, rfs_cipher_text_bytes(job->cipher, job->number) - (uint64_t)units->first * UNIT);
    const struct iovec all[] = {{edges->before, before},
                                {edges->head, units->head ? head : 0},
                                {whole, units->whole_bytes},
                                {edges->last, units->last_bytes}};
    struct iovec spans[4];
    int n = 0;
    for (unsigned i = 0; i < 4; i++)
        if (all[i].iov_len > 0)
            spans[n++] = all[i];
    int rc = read_spans(job, spans, n, text + (uint64_t)units->first * UNIT - before);
    if (rc == 0 && !chained)
        rc = counter_iv(job, units->first, edges->before);
    EVP_CIPHER_CTX *context = NULL;
    if (rc == 0)
        rc = begin(job, edges->before, &context);
    if (rc == 0)
        rc = decrypt(job, context, edges->head, all[1].iov_len);
    if (rc == 0)
        rc = decrypt(job, context, whole, units->whole_bytes);
    if (rc == 0)
        rc = decrypt(job, context, edges->last, units->last_bytes);
    EVP_CIPHER_CTX_free(context);
    return rc;
}

int rfs_cipher_pread(const struct rfs_cipher *cipher, const struct rfs_cipher_input *input,
                     const struct rfs_key *key, uint32_t number, void *buf, size_t size,
                     uint32_t offset, struct rfs_error *err)
{
    const struct job job = {cipher, input, key, number, err};
    const struct units units = find_units(&job, offset, (uint32_t)size);
    unsigned char *out = buf;
    struct edges edges;
    const uint32_t skip = offset % UNIT;
    const size_t head = units.head ? (size_t)rfs_min_u64(UNIT - skip, size) : 0;
    int rc = read_units(&job, &units, &edges, out + head);
    if (rc == 0 && units.checked) {
        const uint32_t padding = UNIT - rfs_cipher_plain(cipher, number) % UNIT;
        if (!is_padding(units.last ? edges.last : edges.head, padding))
            rc = fail_doubt(&job, "has no padding at its end");
    }
    if (rc == 0) {
        const size_t done = head + units.whole_bytes;
        memcpy(out, edges.head + skip, head);
        memcpy(out + done, edges.last, size - done);
    }
    rfs_secret_wipe(&edges, sizeof edges);
    return rc;
}

/* Finds the length of the last block's plain text, from its padding. */
static int measure_last(struct rfs_cipher *cipher, const struct job *job)
{
    const struct units units = {.first = cipher->last_text_bytes / UNIT - 1, .head = true};
    struct edges edges;
    int rc = read_units(job, &units, &edges, NULL);
    const uint32_t padding = edges.head[UNIT - 1];
    if (rc == 0 && (padding < 1 || padding > UNIT || !is_padding(edges.head, padding) ||
                    padding == cipher->last_text_bytes ||
                    cipher->last_text_bytes - padding > cipher->block_bytes))
        rc = fail_doubt(job, "has no padding at its end");
    rfs_secret_wipe(&edges, sizeof edges);
    if (rc < 0)
        return rc;
    cipher->last_plain = cipher->last_text_bytes - padding;
    cipher->plain_bytes = (uint64_t)(cipher->blocks - 1) * cipher->block_bytes + cipher->last_plain;
    return 0;
}

int rfs_cipher_measure(struct rfs_cipher *cipher, const struct rfs_cipher_input *input,
                       const struct rfs_key *key, struct rfs_error *err)
{
    struct job job = {cipher, input, key, cipher->blocks - 1, err};
    unsigned char first = 0;
    int rc = check_length(cipher, key, input->path, err);
    if (rc || cipher->mode == RFS_AES_GCM)
        return rc;
    rc = pads(cipher) ? measure_last(cipher, &job) : 0;
    if (rc == 0)
        rc = rfs_cipher_pread(cipher, input, key, 0, &first, 1, 0, err);
    job.number = 0;
    if (rc == 0 && first != 0x0a) /* the key of Checkpoint.value: ckpt/ckpt.c draws it */
        rc = fail_doubt(&job, "does not begin as a .ckpt does");
    return rc;
}

const char *rfs_cipher_library(void)
{
    return OpenSSL_version(OPENSSL_VERSION);
}
