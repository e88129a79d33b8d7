/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/example/value.h"

#include <endian.h>

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t rfs_value_key(uint64_t seed, const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return mix(hash ^ mix(seed));
}

/*
 * Masks repeated over 8 bytes. Floats keep the sign, two bits of the exponent and the mantissa; the
 * other bits of the exponent are fixed, so that it is 1, 3, 5 or 7 below the one of 1.0.
 */
struct masks {
    uint32_t bytes;
    uint64_t and, or ;
};

static struct masks masks_of(enum rfs_dtype dtype)
{
    switch (dtype) {
    case RFS_BOOL:
        return (struct masks){1, UINT64_C(0x0101010101010101), 0};
    case RFS_INT8:
    case RFS_UINT8:
        return (struct masks){1, UINT64_MAX, 0};
    case RFS_INT16:
    case RFS_UINT16:
        return (struct masks){2, UINT64_MAX, 0};
    case RFS_INT32:
    case RFS_UINT32:
        return (struct masks){4, UINT64_MAX, 0};
    case RFS_INT64:
    case RFS_UINT64:
        return (struct masks){8, UINT64_MAX, 0};
    case RFS_FLOAT16:
        return (struct masks){2, UINT64_C(0x9bff9bff9bff9bff), UINT64_C(0x2000200020002000)};
    case RFS_BFLOAT16:
        return (struct masks){2, UINT64_C(0x837f837f837f837f), UINT64_C(0x3c003c003c003c00)};
    case RFS_FLOAT32:
        return (struct masks){4, UINT64_C(0x837fffff837fffff), UINT64_C(0x3c0000003c000000)};
    case RFS_FLOAT64:
        return (struct masks){8, UINT64_C(0x806fffffffffffff), UINT64_C(0x3f80000000000000)};
    default:
        return (struct masks){0, 0, 0};
    }
}

uint32_t rfs_value_bytes(enum rfs_dtype dtype)
{
    return masks_of(dtype).bytes;
}

static uint64_t word(uint64_t key, const struct masks *masks, uint64_t j)
{
    return htole64((mix(key + (j + 1) * UINT64_C(0x9e3779b97f4a7c15)) & masks->and) | masks->or);
}

void rfs_value_fill(uint64_t key, enum rfs_dtype dtype, uint64_t first, uint64_t count, void *out)
{
    const struct masks masks = masks_of(dtype);
    unsigned char *to = out;
    uint64_t at = first * masks.bytes;
    const uint64_t end = at + count * masks.bytes;
    while (at < end) {
        const uint64_t w = word(key, &masks, at / 8);
        const size_t skip = (size_t)(at % 8);
        const size_t left = (size_t)(end - at);
        const size_t n = left < 8 - skip ? left : 8 - skip;
        if (n == 8)
            memcpy(to, &w, 8);
        else
            memcpy(to, (const unsigned char *)&w + skip, n);
        to += n;
        at += n;
    }
}
