/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread: N runs that lie within 16 source bytes go to their places in 32 destination bytes.
 *
 *     src  a a b b c c d d …              run 2, dst_stride 8
 *     dst  a a . . . . . . b b . . . . . . c c . . . . . . d d . . . . . .
 *
 * pack: the runs that lie within 16 source bytes go one after another; the 16 bytes stored end in
 * bytes that the next step overwrites.
 *
 *     src  a a . . b b . . c c . . d d . .   run 2, src_stride 4
 *     dst  a a b b c c d d x x x x x x x x
 */
#include "assemble/kernels_vectors.h"

#if defined(__x86_64__)

#include "base/processor.h"

#include <immintrin.h>

#define RFS_AVX2 __attribute__((target("avx2")))

RFS_AVX2 static size_t spread(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                              size_t src_stride, size_t run, size_t count)
{
    const size_t per_step = 32 / dst_stride;
    const size_t src_span = (count - 1) * src_stride + run;
    const size_t dst_span = (count - 1) * dst_stride + run;
    size_t steps = rfs_kernels_steps(src_span, 16, per_step * src_stride);
    const size_t room = rfs_kernels_steps(dst_span, 32, 32);
    if (steps > room)
        steps = room;

    uint8_t pick[32], mask[32];
    memset(pick, 0x80, sizeof pick);
    memset(mask, 0, sizeof mask);
    for (size_t k = 0; k < per_step; k++) {
        for (size_t b = 0; b < run; b++) {
            pick[k * dst_stride + b] = (uint8_t)(k * src_stride + b);
            mask[k * dst_stride + b] = 0xff;
        }
    }
    const __m256i picks = _mm256_loadu_si256((const __m256i_u *)pick);
    const __m256i masks = _mm256_loadu_si256((const __m256i_u *)mask);
    const size_t src_step = per_step * src_stride;
    for (size_t i = 0; i < steps; i++) {
        const __m256i in = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i_u *)src));
        const __m256i old = _mm256_loadu_si256((const __m256i_u *)dst);
        const __m256i out = _mm256_blendv_epi8(old, _mm256_shuffle_epi8(in, picks), masks);
        _mm256_storeu_si256((__m256i_u *)dst, out);
        src += src_step;
        dst += 32;
    }
    return steps * per_step;
}

RFS_AVX2 static size_t pack(unsigned char *dst, const unsigned char *src, size_t src_stride,
                            size_t run, size_t count)
{
    const size_t per_step = (16 - run) / src_stride + 1;
    const size_t src_span = (count - 1) * src_stride + run;
    size_t steps = rfs_kernels_steps(src_span, 16, per_step * src_stride);
    const size_t room = rfs_kernels_steps(count * run, 16, per_step * run);
    if (steps > room)
        steps = room;

    uint8_t pick[16];
    memset(pick, 0x80, sizeof pick);
    for (size_t k = 0; k < per_step; k++) {
        for (size_t b = 0; b < run; b++)
            pick[k * run + b] = (uint8_t)(k * src_stride + b);
    }
    const __m128i picks = _mm_loadu_si128((const __m128i_u *)pick);
    const size_t src_step = per_step * src_stride, dst_step = per_step * run;
    for (size_t i = 0; i < steps; i++) {
        const __m128i in = _mm_loadu_si128((const __m128i_u *)src);
        _mm_storeu_si128((__m128i_u *)dst, _mm_shuffle_epi8(in, picks));
        src += src_step;
        dst += dst_step;
    }
    return steps * per_step;
}

size_t rfs_kernels_shuffle(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                           size_t src_stride, size_t run, size_t count)
{
    if (count < 16 || !rfs_processor_has_avx2())
        return 0;
    if (dst_stride == run && src_stride <= 16 - run)
        return pack(dst, src, src_stride, run, count);
    const size_t per_step = dst_stride > 16 ? 0 : 32 / dst_stride;
    const int divides = per_step > 1 && per_step * dst_stride == 32;
    if (divides && src_stride <= 16 && (per_step - 1) * src_stride + run <= 16)
        return spread(dst, dst_stride, src, src_stride, run, count);
    return 0;
}

#endif
