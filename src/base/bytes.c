/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

#include "base/vec.h"

#include <inttypes.h>
#include <stdio.h>

bool rfs_bytes_put(struct rfs_bytes *bytes, const void *data, size_t n)
{
    while (bytes->cap - bytes->n < n)
        if (!rfs_vec_grow((void **)&bytes->data, &bytes->cap, bytes->cap, 1))
            return false;
    if (n > 0)
        memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    return true;
}

bool rfs_bytes_put_number(struct rfs_bytes *bytes, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64, number);
    return rfs_bytes_put_text(bytes, text);
}
