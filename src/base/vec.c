/* SPDX-License-Identifier: Apache-2.0 */
#include "base/vec.h"

#include "base/checked.h"

#include <stdlib.h>

bool rfs_vec_grow(void **data, size_t *cap, size_t n, size_t size)
{
    size_t want = n + n / 2 + 8, bytes;
    void *grown;

    if (n < *cap)
        return true;
    if (want <= n || !rfs_mul_size(want, size, &bytes))
        return false;
    grown = realloc(*data, bytes);
    if (!grown)
        return false;
    *data = grown;
    *cap = want;
    return true;
}
