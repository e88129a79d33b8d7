/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

const char *rfs_hash_text(struct rfs_hash hash, char out[RFS_HASH_TEXT])
{
    snprintf(out, RFS_HASH_TEXT, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return out;
}

/* Parses N characters. False when they are not 32 lower-case hexadecimal digits. */
static bool parse(const char *text, size_t n, struct rfs_hash *out)
{
    uint64_t word[2] = {0, 0};

    if (n != RFS_HASH_TEXT - 1)
        return false;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        word[i / 16] = word[i / 16] << 4 | (uint64_t)digit;
    }
    *out = (struct rfs_hash){word[0], word[1]};
    return true;
}

bool rfs_hash_read(struct rfs_json_read *json, void *at)
{
    return rfs_json_read_string(json) &&
           (parse(json->text, json->text_n, at) ||
            rfs_json_read_fail(json, "a hash is not of 32 hexadecimal digits"));
}
