/* SPDX-License-Identifier: Apache-2.0 */
#include "store/crypt/hmac.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

bool rfs_sha256(const void *data, size_t n, unsigned char out[RFS_SHA256_BYTES])
{
    return EVP_Digest(data, n, out, NULL, EVP_sha256(), NULL) == 1;
}

bool rfs_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t n,
                     unsigned char out[RFS_SHA256_BYTES])
{
    return HMAC(EVP_sha256(), key, (int)key_bytes, data, n, out, NULL) != NULL;
}
