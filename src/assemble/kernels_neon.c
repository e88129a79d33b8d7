/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shuffles of kernels_x86.c, whose drawing they share, in registers of 16 bytes: spread fills
 * 16 destination bytes at a time.
 */
#include "assemble/kernels_vectors.h"

#if defined(__aarch64__)

#include "base/checked.h"

#include <arm_neon.h>

static size_t spread(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                     size_t src_stride, size_t run, size_t count)
{
    const size_t per_step = 16 / dst_stride;
    const size_t src_span = (count - 1) * src_stride + run;
    const size_t dst_span = (count - 1) * dst_stride + run;
    const size_t steps = rfs_min_u64(rfs_kernels_steps(src_span, 16, per_step * src_stride),
                                     rfs_kernels_steps(dst_span, 16, 16));
    uint8_t pick[16] = {0};
    uint8_t mask[16] = {0};

    for (size_t k = 0; k < per_step; k++)
        for (size_t b = 0; b < run; b++) {
            pick[k * dst_stride + b] = (uint8_t)(k * src_stride + b);
            mask[k * dst_stride + b] = 0xff;
        }
    const uint8x16_t picks = vld1q_u8(pick);
    const uint8x16_t masks = vld1q_u8(mask);
    for (size_t i = 0; i < steps; i++) {
        const uint8x16_t runs = vqtbl1q_u8(vld1q_u8(src), picks);
        vst1q_u8(dst, vbslq_u8(masks, runs, vld1q_u8(dst)));
        src += per_step * src_stride;
        dst += 16;
    }
    return steps * per_step;
}

static size_t pack(unsigned char *dst, const unsigned char *src, size_t src_stride, size_t run,
                   size_t count)
{
    const size_t per_step = (16 - run) / src_stride + 1;
    const size_t src_span = (count - 1) * src_stride + run;
    const size_t steps = rfs_min_u64(rfs_kernels_steps(src_span, 16, per_step * src_stride),
                                     rfs_kernels_steps(count * run, 16, per_step * run));
    uint8_t pick[16] = {0};

    for (size_t k = 0; k < per_step; k++)
        for (size_t b = 0; b < run; b++)
            pick[k * run + b] = (uint8_t)(k * src_stride + b);
    const uint8x16_t picks = vld1q_u8(pick);
    for (size_t i = 0; i < steps; i++) {
        vst1q_u8(dst, vqtbl1q_u8(vld1q_u8(src), picks));
        src += per_step * src_stride;
        dst += per_step * run;
    }
    return steps * per_step;
}

size_t rfs_kernels_shuffle(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                           size_t src_stride, size_t run, size_t count)
{
    if (count < 16)
        return 0;
    if (dst_stride == run && src_stride <= 16 - run)
        return pack(dst, src, src_stride, run, count);
    const size_t per_step = dst_stride > 8 ? 0 : 16 / dst_stride;
    if (per_step > 1 && per_step * dst_stride == 16 && src_stride <= 16 &&
        (per_step - 1) * src_stride + run <= 16)
        return spread(dst, dst_stride, src, src_stride, run, count);
    return 0;
}

#endif
