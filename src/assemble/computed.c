/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/computed.h"

#include "assemble/cast.h"
#include "base/checked.h"

#define AT_ONCE 512 /* elements */

static void add_float64(double plus, unsigned char *at, size_t count)
{
    for (size_t i = 0; i < count; i++, at += sizeof plus) {
        double value;
        memcpy(&value, at, sizeof value);
        value += plus;
        memcpy(at, &value, sizeof value);
    }
}

/* Adds to COUNT elements, which need not be aligned. */
static void add(const struct rfs_content *content, unsigned char *at, size_t count)
{
    const enum rfs_dtype dtype = (enum rfs_dtype)content->dtype;
    float values[AT_ONCE];

    if (dtype == RFS_FLOAT64) {
        add_float64(content->plus, at, count);
        return;
    }
    for (size_t n; count > 0; count -= n, at += n * rfs_dtype_bytes(dtype)) {
        n = count < AT_ONCE ? count : AT_ONCE;
        rfs_cast(RFS_FLOAT32, values, dtype, at, n);
        for (size_t i = 0; i < n; i++)
            values[i] += (float)content->plus;
        rfs_cast(dtype, at, RFS_FLOAT32, values, n);
    }
}

int rfs_computed_pread(struct rfs_reading *reading, const struct rfs_content *content,
                       struct rfs_quant_scales *scales, void *buf, size_t size, uint64_t offset)
{
    const size_t item = content->plus != 0 ? rfs_dtype_bytes((enum rfs_dtype)content->dtype) : 1;
    unsigned char *at = buf;

    if (content->zeros) {
        memset(buf, 0, size);
        return 0;
    }
    /* Only whole elements can be added to; a range may begin and end inside of one. */
    for (size_t n; size > 0; size -= n, at += n, offset += n) {
        unsigned char one[sizeof(double)];
        const size_t skip = (size_t)(offset % item);
        const bool part = skip > 0 || size < item;
        n = part ? (size_t)rfs_min_u64(size, item - skip) : size - size % item;
        unsigned char *to = part ? one : at;
        const size_t bytes = part ? item : n;
        const int rc =
            rfs_catalog_content_pread(reading, content, scales, to, bytes, offset - skip);
        if (rc < 0)
            return rc;
        if (item > 1)
            add(content, to, bytes / item);
        if (part)
            memcpy(at, one + skip, n);
    }
    return 0;
}
