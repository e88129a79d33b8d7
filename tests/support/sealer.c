/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sealer.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "sealer: %s\n", what);
    abort();
}

const unsigned char *seal_key(size_t n)
{
    static const unsigned char key[] = "ReshardFS tests: not a real key.";
    must(n < sizeof key, "a key of that length");
    return key;
}

size_t seal_room(const struct seal *seal, size_t n)
{
    return n + (n / seal->block_bytes + 1) * 64;
}

static const EVP_CIPHER *cipher_of(const struct seal *seal)
{
    char name[32];
    if (seal->mode == RFS_SM4_CBC)
        snprintf(name, sizeof name, "sm4-cbc");
    else
        snprintf(name, sizeof name, "aes-%zu-%s", seal->key_bytes * 8,
                 seal->mode == RFS_AES_CBC ? "cbc" : "gcm");
    const EVP_CIPHER *cipher = EVP_get_cipherbyname(name);
    must(cipher != NULL, name);
    return cipher;
}

static size_t put_number(unsigned char *at, size_t number)
{
    for (unsigned i = 0; i < 4; i++)
        at[i] = (unsigned char)(number >> 8 * i);
    return 4;
}

static size_t seal_block(const struct seal *seal, const unsigned char *plain, size_t n,
                         const unsigned char iv[16], unsigned char *out)
{
    static const unsigned char first[RFS_CIPHER_COUNT] = {0, 0xd8, 0xd9, 0xda, 0xd8};
    const bool tagged = seal->mode == RFS_AES_GCM && !seal->old;
    const bool gcm = seal->mode == RFS_AES_GCM || seal->mode == RFS_AES_GCM_UNTAGGED;
    const size_t header = tagged ? 48 : 32;
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    int made = 0;
    int more = 0;
    must(EVP_EncryptInit_ex(context, cipher_of(seal), NULL, seal->key, iv) == 1, "init");
    must(EVP_EncryptUpdate(context, out + header, &made, plain, (int)n) == 1, "update");
    must(EVP_EncryptFinal_ex(context, out + header + made, &more) == 1, "final");
    const size_t encrypted = (size_t)(made + more);
    size_t at = 0;
    out[at++] = seal->old ? 0xd8 : first[seal->mode];
    memcpy(out + at, "\x5e\x3a\x7f", 3);
    at += 3;
    if (tagged) {
        must(gcm && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, out + at) == 1, "tag");
        at += 16;
    }
    at += put_number(out + at, 24 + encrypted);
    at += put_number(out + at, 16);
    memcpy(out + at, iv, 16);
    at += 16;
    at += put_number(out + at, encrypted);
    must(at == header, "a header");
    EVP_CIPHER_CTX_free(context);
    return header + encrypted;
}

size_t seal(const struct seal *seal, const unsigned char *plain, size_t n, unsigned salt,
            unsigned char *out)
{
    size_t made = 0;
    for (size_t done = 0; done < n; done += seal->block_bytes) {
        const size_t take = n - done < seal->block_bytes ? n - done : seal->block_bytes;
        unsigned char iv[16];
        for (unsigned i = 0; i < 16; i++)
            iv[i] = (unsigned char)((salt + 1) * (i + 3) * 37 + done / seal->block_bytes * 11 + i);
        memcpy(iv, &salt, sizeof salt);
        const uint64_t number = done / seal->block_bytes;
        memcpy(iv + 4, &number, sizeof number);
        made += seal_block(seal, plain + done, take, iv, out + made);
    }
    return made;
}

void seal_file(const char *path, const struct seal *like, unsigned salt)
{
    struct seal how = *like;
    struct stat st;
    FILE *file = fopen(path, "r+e");
    must(file && fstat(fileno(file), &st) == 0, path);
    const size_t n = (size_t)st.st_size;
    unsigned char *plain = malloc(n);
    unsigned char *encrypted = malloc(seal_room(&how, n));
    must(plain && encrypted && fread(plain, 1, n, file) == n, path);
    how.key = how.key ? how.key : seal_key(how.key_bytes);
    const size_t made = seal(&how, plain, n, salt, encrypted);
    rewind(file);
    must(fwrite(encrypted, 1, made, file) == made && fclose(file) == 0, path);
    free(plain);
    free(encrypted);
}
