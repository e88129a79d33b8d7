/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/numbers.h"

#include "assemble/cast.h"

#define BLOCK 1024 /* floats on the stack */

uint32_t rfs_numbers_each(const struct rfs_type *type)
{
    if (type->kind != RFS_TENSOR || rfs_dtype_packed((enum rfs_dtype)type->dtype) > 1)
        return 0;
    switch (type->dtype) {
    case RFS_COMPLEX64:
    case RFS_COMPLEX128:
        return 2;
    case RFS_FLOAT8_E8M0:
    case RFS_FLOAT8_E4M3FNUZ:
    case RFS_FLOAT8_E5M2FNUZ:
    case RFS_HIFLOAT8:
    case RFS_STR:
        return 0;
    default:
        return 1;
    }
}

uint32_t rfs_numbers_bytes(const struct rfs_type *type)
{
    const uint32_t each = rfs_numbers_each(type);
    const uint32_t bytes = rfs_dtype_bytes((enum rfs_dtype)type->dtype);

    return each > 1 ? bytes / each : bytes;
}

uint64_t rfs_numbers_count(const struct rfs_type *type)
{
    return rfs_numbers_each(type) > 0 ? type->bytes / rfs_numbers_bytes(type) : 0;
}

#define DECODE(T)                                                                                  \
    do {                                                                                           \
        for (size_t i = 0; i < n; i++) {                                                           \
            T value;                                                                               \
            memcpy(&value, (const unsigned char *)src + i * sizeof value, sizeof value);           \
            out[i] = (double)value;                                                                \
        }                                                                                          \
    } while (0)

/* Decodes numbers by way of floats, which hold all of them exactly. */
static void decode_short(enum rfs_dtype dtype, const unsigned char *src, size_t n, double *out)
{
    const size_t bytes = rfs_dtype_bytes(dtype);
    float values[BLOCK];

    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t some = n - at < BLOCK ? n - at : BLOCK;
        rfs_cast(RFS_FLOAT32, values, dtype, src + at * bytes, some);
        for (size_t i = 0; i < some; i++)
            out[at + i] = (double)values[i];
    }
}

void rfs_numbers_decode(const struct rfs_type *type, const void *src, size_t n, double *out)
{
    switch (type->dtype) {
    case RFS_BOOL:
        for (size_t i = 0; i < n; i++)
            out[i] = ((const unsigned char *)src)[i] != 0;
        break;
    case RFS_INT4:
    case RFS_INT8:
        DECODE(int8_t);
        break;
    case RFS_UINT8:
        DECODE(uint8_t);
        break;
    case RFS_INT16:
        DECODE(int16_t);
        break;
    case RFS_UINT16:
        DECODE(uint16_t);
        break;
    case RFS_INT32:
        DECODE(int32_t);
        break;
    case RFS_UINT32:
        DECODE(uint32_t);
        break;
    case RFS_INT64:
        DECODE(int64_t);
        break;
    case RFS_UINT64:
        DECODE(uint64_t);
        break;
    case RFS_FLOAT32:
    case RFS_COMPLEX64:
        DECODE(float);
        break;
    case RFS_FLOAT64:
    case RFS_COMPLEX128:
        memcpy(out, src, n * sizeof *out);
        break;
    default:
        decode_short((enum rfs_dtype)type->dtype, src, n, out);
        break;
    }
}
