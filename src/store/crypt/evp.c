/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks in plain, by OpenSSL. Everything is decrypted in place: the cipher text is read into the
 * buffer for the plain text. cipher.c draws the format.
 */
#include "store/crypt/cipher.h"

#include "base/checked.h"
#include "base/secret.h"
#include "base/secret_slots.h"
#include "store/crypt/key.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#define UNIT RFS_CIPHER_UNIT
#define TAG_BYTES 16
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

static bool pads(const struct rfs_cipher *cipher)
{
    return cipher->mode == RFS_AES_CBC || cipher->mode == RFS_SM4_CBC;
}

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

int rfs_cipher_takes_key(const struct rfs_cipher *cipher, const struct rfs_key *key,
                         const char *path, struct rfs_error *err)
{
    if (cipher->mode != RFS_SM4_CBC || rfs_key_bytes(key) == 16)
        return 0;
    return rfs_fail(err, -EINVAL, RFS_IN(path), "the key that the file was saved with",
                    "the file is encrypted by SM4-CBC, which takes a key of 16 bytes, and the key "
                    "given has %zu",
                    rfs_key_bytes(key));
}

static int fail_unsupported(const struct job *job)
{
    return rfs_fail(job->err, -ENOTSUP, RFS_IN(job->input->path), "another build of OpenSSL",
                    "OpenSSL here does not do %s with a key of %zu bytes",
                    rfs_cipher_name(job->cipher->mode), rfs_key_bytes(job->key));
}

/*
 * A call of OpenSSL failed that no input can make fail: there is no memory, or this library has no
 * such cipher.
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

/* ---- where contexts lie ---- */

/* While a context is made: memory that this thread allocates is a part of it. */
static _Thread_local bool making;

static void *take_memory(size_t n, const char *file, int line)
{
    void *at = making ? rfs_slots_take(n) : NULL;

    (void)file;
    (void)line;
    return at ? at : malloc(n);
}

static void give_memory(void *at, const char *file, int line)
{
    (void)file;
    (void)line;
    if (rfs_slots_has(at))
        rfs_slots_give(at);
    else
        free(at);
}

static void *change_memory(void *at, size_t n, const char *file, int line)
{
    if (!rfs_slots_has(at))
        return realloc(at, n);
    void *moved = n > 0 ? take_memory(n, file, line) : NULL;
    if (moved)
        memcpy(moved, at, n < RFS_SLOT_BYTES ? n : RFS_SLOT_BYTES);
    if (moved || n == 0)
        give_memory(at, file, line);
    return moved;
}

bool rfs_cipher_guard(void)
{
    if (!rfs_slots_open() || CRYPTO_set_mem_functions(take_memory, change_memory, give_memory) != 1)
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

/* A context that decrypts from IV on, to be freed by the caller. 0 or -errno with *err filled. */
static int begin(const struct job *job, const unsigned char *iv, EVP_CIPHER_CTX **out)
{
    const EVP_CIPHER *type = find_cipher(job->cipher->mode, rfs_key_bytes(job->key));
    ERR_clear_error();
    rfs_key_hold(job->key);
    making = true;
    *out = EVP_CIPHER_CTX_new();
    const bool made = *out && type &&
                      EVP_DecryptInit_ex(*out, type, NULL, rfs_key_data(job->key), iv) == 1 &&
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

/*
 * The rest of a block behind its header, chunk by chunk, so that each is decrypted while it is in
 * the processor's cache.
 */
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
 * The IV of counter mode at unit UNIT of the block: the first 12 bytes of the block's, and the
 * count.
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
    rfs_wipe(&edges, sizeof edges);
    return rc;
}

/* The length of the last block's plain text, from its padding. */
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
    rfs_wipe(&edges, sizeof edges);
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
    if (cipher->mode == RFS_AES_GCM)
        return 0;
    int rc = pads(cipher) ? measure_last(cipher, &job) : 0;
    if (rc == 0)
        rc = rfs_cipher_pread(cipher, input, key, 0, &first, 1, 0, err);
    job.number = 0;
    if (rc == 0 && first != 0x0a) /* the key of Checkpoint.value: ckpt/walk.c draws it */
        rc = fail_doubt(&job, "does not begin as a .ckpt does");
    return rc;
}

const char *rfs_cipher_library(void)
{
    return OpenSSL_version(OPENSSL_VERSION);
}
