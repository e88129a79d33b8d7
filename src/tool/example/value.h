/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of an example's tensors: a pure function of the seed, the parameter's name and the
 * element's place in the whole tensor, so that any slice can be computed by anybody, alone.
 * reshard(1) documents it; scripts/check-example computes it independently.
 *
 *     mix(z)   = SplitMix64's finaliser: z ^= z >> 30, z *= 0xbf58476d1ce4e5b9, z ^= z >> 27,
 *                z *= 0x94d049bb133111eb, z ^= z >> 31, all modulo 2^64
 *     key      = mix(FNV-1a-64(name) ^ mix(seed))
 *     word(j)  = mix(key + (j + 1) * 0x9e3779b97f4a7c15), j = 0, 1, …
 *
 * The words, little-endian, one after the other, are a stream of bytes. Element i (row-major, of
 * the whole tensor) of s bytes is the stream's bytes [i * s, i * s + s) as a little-endian integer,
 * with AND and then OR of its dtype's masks: a floating-point number is then normal and below 1 in
 * magnitude, a Bool 0 or 1, an integer any value.
 */
#pragma once

#include "formats/dtype.h"

uint64_t rfs_value_key(uint64_t seed, const char *name);

/* COUNT elements from element FIRST on into OUT. rfs_value_bytes of DTYPE must not be 0. */
void rfs_value_fill(uint64_t key, enum rfs_dtype dtype, uint64_t first, uint64_t count, void *out);

/* Bytes of an element, or 0 when the function is not defined for the dtype. */
uint32_t rfs_value_bytes(enum rfs_dtype dtype);
