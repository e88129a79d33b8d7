/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the part of rfs_cast in which vector instructions are faster: AVX2 and F16C (cast_x86.c), or
 * those of aarch64 (cast_neon.c). Other processors have none.
 */
#pragma once

#include "formats/dtype.h"

#if defined(__x86_64__) || defined(__aarch64__)
/*
 * Casts as many of the first elements as it can and returns how many: 0 where the processor or
 * the types don't suit.
 */
size_t rfs_cast_vectors(enum rfs_dtype to, void *dst, enum rfs_dtype from, const void *src,
                        size_t count);
#else
static inline size_t rfs_cast_vectors(enum rfs_dtype to, void *dst, enum rfs_dtype from,
                                      const void *src, size_t count)
{
    (void)to, (void)dst, (void)from, (void)src, (void)count;
    return 0;
}
#endif
