/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of 16 and 32 bits, 16 elements at a time, each by way of Float32. The rounding is in the
 * instruction (F16C) or made of integers (BFloat16), and F16C does not flush subnormals: so the
 * process's floating-point environment does not matter. F16C makes NaNs quiet and keeps their
 * payload, as cast.h promises.
 */
#include "assemble/cast_vectors.h"

#if defined(__x86_64__)

#include "base/processor.h"

#include <immintrin.h>

#define RFS_CAST_TARGET __attribute__((target("avx2,f16c")))
#define RFS_INLINE static inline __attribute__((target("avx2,f16c"), always_inline))

#define STEP 16

struct lanes {
    __m256i half[2]; /* the bits of 8 Float32 each, in order */
};

RFS_INLINE struct lanes load_f32(const unsigned char *src)
{
    return (struct lanes){{_mm256_loadu_si256((const __m256i_u *)src),
                           _mm256_loadu_si256((const __m256i_u *)(src + 32))}};
}

RFS_INLINE __m256i from_f16(const unsigned char *src)
{
    return _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)src)));
}

RFS_INLINE struct lanes load_f16(const unsigned char *src)
{
    return (struct lanes){{from_f16(src), from_f16(src + 16)}};
}

/* Returns 1 bits where BITS is a NaN. */
RFS_INLINE __m256i is_nan(__m256i bits)
{
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    return _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
}

RFS_INLINE __m256i from_bf16(const unsigned char *src)
{
    const __m128i bits = _mm_loadu_si128((const __m128i_u *)src);
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16);
}

RFS_INLINE struct lanes load_bf16(const unsigned char *src)
{
    return (struct lanes){{from_bf16(src), from_bf16(src + 16)}};
}

RFS_INLINE void store_f32(unsigned char *dst, struct lanes lanes)
{
    _mm256_storeu_si256((__m256i_u *)dst, lanes.half[0]);
    _mm256_storeu_si256((__m256i_u *)(dst + 32), lanes.half[1]);
}

RFS_INLINE void to_f16(unsigned char *dst, __m256i bits)
{
    const __m256 values = _mm256_castsi256_ps(bits);
    _mm_storeu_si128((__m128i_u *)dst, _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
}

RFS_INLINE void store_f16(unsigned char *dst, struct lanes lanes)
{
    to_f16(dst, lanes.half[0]);
    to_f16(dst + 16, lanes.half[1]);
}

/* Returns BITS rounded, in the lower half of each lane. All NaNs become one and the same. */
RFS_INLINE __m256i to_bf16(__m256i bits)
{
    const __m256i nan = is_nan(bits);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i quiet = _mm256_set1_epi32(0x7fc00000);
    const __m256i rounded = _mm256_blendv_epi8(_mm256_add_epi32(bits, half), quiet, nan);
    return _mm256_srli_epi32(rounded, 16);
}

/* Packing works in each half of a register by itself: the middle two quarters come out swapped. */
RFS_INLINE void store_bf16(unsigned char *dst, struct lanes lanes)
{
    const __m256i packed = _mm256_packus_epi32(to_bf16(lanes.half[0]), to_bf16(lanes.half[1]));
    _mm256_storeu_si256((__m256i_u *)dst, _mm256_permute4x64_epi64(packed, 0xd8));
}

#include "assemble/cast_loops.h"

size_t rfs_cast_vectors(enum rfs_dtype to, void *dst, enum rfs_dtype from, const void *src,
                        size_t count)
{
    loop_fn *const loop = loops[from][to];

    if (!loop || count < STEP || !rfs_processor_has_avx2())
        return 0;
    loop(dst, src, count / STEP);
    return count / STEP * STEP;
}

#endif
