/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/sign.h"

#include "base/cleanup.h"
#include "base/secret.h"
#include "base/text.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#define MD5_BYTES 16
#define SHA256_BYTES 32
#define HEX_BYTES (2 * SHA256_BYTES + 1)

/* Computes a SHA-256. False when out of memory. */
static bool sha256(const void *data, size_t n, unsigned char out[SHA256_BYTES])
{
    return EVP_Digest(data, n, out, NULL, EVP_sha256(), NULL) == 1;
}

/* Computes an HMAC of SHA-256; OUT may be KEY. False when out of memory. */
static bool hmac(const void *key, size_t key_bytes, const void *data, size_t n,
                 unsigned char out[SHA256_BYTES])
{
    return HMAC(EVP_sha256(), key, (int)key_bytes, data, n, out, NULL) != NULL;
}

/* Writes N bytes as 2 N digits and a NUL. */
static void put_hex(const unsigned char *data, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", data[i]);
}

static void to_hex(const unsigned char *data, char out[HEX_BYTES])
{
    put_hex(data, SHA256_BYTES, out);
}

/* ---- what is sent ---------------------------------------------------------------------------- */

/* Computes a checksum of the spans. 0, -ENOTSUP, or -ENOMEM. */
static int digest_spans(const EVP_MD *kind, const struct iovec *spans, int count,
                        unsigned char *out)
{
    EVP_MD_CTX *state = EVP_MD_CTX_new();

    if (!state)
        return -ENOMEM;
    bool summed = EVP_DigestInit_ex(state, kind, NULL) == 1;
    for (int i = 0; summed && i < count; i++)
        summed = EVP_DigestUpdate(state, spans[i].iov_base, spans[i].iov_len) == 1;
    summed = summed && EVP_DigestFinal_ex(state, out, NULL) == 1;
    EVP_MD_CTX_free(state);
    return summed ? 0 : -ENOTSUP;
}

int rfs_sign_sum(const struct iovec *spans, int count, struct rfs_sign_sums *out)
{
    unsigned char sha[SHA256_BYTES], md5[MD5_BYTES];
    const int rc =
        digest_spans(EVP_sha256(), spans, count, sha) ?: digest_spans(EVP_md5(), spans, count, md5);

    if (rc)
        return rc;
    to_hex(sha, out->sha256);
    put_hex(md5, MD5_BYTES, out->md5);
    EVP_EncodeBlock((unsigned char *)out->md5_base64, md5, MD5_BYTES);
    return 0;
}

int rfs_sign_sum_parts(const char (*md5s)[33], size_t n, char out[33])
{
    unsigned char md5[MD5_BYTES];
    RFS_FREE unsigned char *all = calloc(n + 1, MD5_BYTES);

    if (!all)
        return -ENOMEM;
    for (size_t i = 0; i < n * MD5_BYTES; i++)
        sscanf(md5s[i / MD5_BYTES] + 2 * (i % MD5_BYTES), "%2hhx", &all[i]);
    const struct iovec span = {all, n * MD5_BYTES};
    const int rc = digest_spans(EVP_md5(), &span, 1, md5);
    if (rc == 0)
        put_hex(md5, MD5_BYTES, out);
    return rc;
}

/* ---- signatures ------------------------------------------------------------------------------ */

char *rfs_sign_encode(const char *text, bool slashes)
{
    static const char digits[] = "0123456789ABCDEF";
    char *out = malloc(3 * strlen(text) + 1);
    char *to = out;

    for (const unsigned char *c = (const unsigned char *)text; out && *c; c++) {
        const bool plain =
            (*c < 128 && isalnum(*c)) || strchr("-._~", *c) || (slashes && *c == '/');
        if (plain) {
            *to++ = (char)*c;
            continue;
        }
        *to++ = '%';
        *to++ = digits[*c >> 4];
        *to++ = digits[*c & 15];
    }
    if (out)
        *to = '\0';
    return out;
}

/* Makes "host;x-amz-date", and "host:…\nx-amz-date:…\n". */
static bool join_headers(const struct rfs_sign *sign, char **names, char **lines)
{
    size_t n = 1, m = 1;

    for (size_t i = 0; i < sign->n_headers; i++) {
        n += strlen(sign->headers[i].name) + 1;
        m += strlen(sign->headers[i].name) + strlen(sign->headers[i].value) + 2;
    }
    *names = calloc(n, 1);
    *lines = calloc(m, 1);
    if (!*names || !*lines)
        return false;
    char *to = *names, *line = *lines;
    for (size_t i = 0; i < sign->n_headers; i++) {
        const struct rfs_sign_header *header = &sign->headers[i];
        to += sprintf(to, "%s%s", i > 0 ? ";" : "", header->name);
        line += sprintf(line, "%s:%s\n", header->name, header->value);
    }
    return true;
}

/* Computes the SHA-256 of the canonical request, in hexadecimal digits. */
static bool digest_request(const struct rfs_sign *sign, const char *names, const char *lines,
                           char out[HEX_BYTES])
{
    unsigned char digest[SHA256_BYTES];

    RFS_FREE char *text =
        rfs_text_printf("%s\n%s\n%s\n%s\n%s\n%s", sign->method, sign->path, sign->query, lines,
                        names, sign->body ? sign->body : RFS_SIGN_NO_BODY);
    if (!text)
        return false;
    if (!sha256(text, strlen(text), digest))
        return false;
    to_hex(digest, out);
    return true;
}

/* Signs TEXT by the key of one day, region and service. */
static bool sign_text(const struct rfs_sign *sign, const char *text, char out[HEX_BYTES])
{
    unsigned char key[SHA256_BYTES];
    char secret[512];
    const int n = snprintf(secret, sizeof secret, "AWS4%s", sign->secret);
    const bool signed_ = n > 0 && (size_t)n < sizeof secret &&
                         hmac(secret, (size_t)n, sign->time, 8, key) &&
                         hmac(key, sizeof key, sign->region, strlen(sign->region), key) &&
                         hmac(key, sizeof key, sign->service, strlen(sign->service), key) &&
                         hmac(key, sizeof key, "aws4_request", strlen("aws4_request"), key) &&
                         hmac(key, sizeof key, text, strlen(text), key);

    if (signed_)
        to_hex(key, out);
    rfs_secret_wipe(secret, sizeof secret);
    rfs_secret_wipe(key, sizeof key);
    return signed_;
}

char *rfs_sign_authorization(const struct rfs_sign *sign)
{
    RFS_FREE char *names = NULL;
    RFS_FREE char *lines = NULL;
    char digest[HEX_BYTES], signature[HEX_BYTES];

    if (!join_headers(sign, &names, &lines) || !digest_request(sign, names, lines, digest))
        return NULL;
    RFS_FREE char *scope =
        rfs_text_printf("%.8s/%s/%s/aws4_request", sign->time, sign->region, sign->service);
    if (!scope)
        return NULL;
    RFS_FREE char *text =
        rfs_text_printf("AWS4-HMAC-SHA256\n%s\n%s\n%s", sign->time, scope, digest);
    if (!text)
        return NULL;
    if (!sign_text(sign, text, signature))
        return NULL;
    return rfs_text_printf("AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s",
                           sign->key_id, scope, names, signature);
}

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool rfs_sign_decode(char *text, bool plus)
{
    char *to = text;

    for (const char *from = text; *from; from++) {
        if (*from != '%') {
            *to++ = plus && *from == '+' ? ' ' : *from;
            continue;
        }
        if (digit(from[1]) < 0 || digit(from[2]) < 0)
            return false;
        const char c = (char)(digit(from[1]) << 4 | digit(from[2]));
        if (c == '\0')
            return false;
        *to++ = c;
        from += 2;
    }
    *to = '\0';
    return true;
}
