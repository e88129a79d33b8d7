/* SPDX-License-Identifier: Apache-2.0 */
#include "base/vec.h"

#include "base/checked.h"
#include "base/text.h"

bool rfs_vec_reserve(void **data, size_t *cap, size_t n, size_t more, size_t size)
{
    size_t need, want, bytes;

    if (n <= *cap && more <= *cap - n)
        return true;
    if (!rfs_add_size(n, more, &need) || !rfs_add_size(need, need / 2 + 7, &want) ||
        !rfs_mul_size(want, size, &bytes))
        return false;
    void *grown = realloc(*data, bytes);
    if (!grown)
        return false;
    *data = grown;
    *cap = want;
    return true;
}

unsigned char *rfs_bytes_room(struct rfs_bytes *bytes, size_t more)
{
    if (bytes->failed || !RFS_RESERVE(bytes, more)) {
        bytes->failed = true;
        return NULL;
    }
    return bytes->data + bytes->n;
}

bool rfs_bytes_put_number(struct rfs_bytes *bytes, uint64_t number)
{
    char digits[RFS_TEXT_DIGITS];

    return rfs_bytes_put_text(bytes, rfs_text_digits(number, digits));
}

void rfs_bytes_free(struct rfs_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct rfs_bytes){0};
}
