/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of 16 and 32 bits, 16 elements at a time, each by way of Float32. Float16 is converted by
 * instructions that all processors of this kind have. They obey the thread's rounding and flushing
 * of subnormals, so these are set aside meanwhile. They make NaNs quiet and keep their payload, as
 * cast.h promises. BFloat16 is rounded by integers.
 */
#include "assemble/cast_vectors.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#define RFS_INLINE static inline __attribute__((always_inline))

#define RFS_CAST_TARGET
#define STEP 16
#define PARTS 4

struct lanes {
    uint32x4_t part[PARTS]; /* the bits of 4 Float32 each, in order */
};

RFS_INLINE struct lanes load_f32(const unsigned char *src)
{
    struct lanes lanes;

    for (unsigned i = 0; i < PARTS; i++)
        lanes.part[i] = vreinterpretq_u32_u8(vld1q_u8(src + (size_t)16 * i));
    return lanes;
}

RFS_INLINE struct lanes load_f16(const unsigned char *src)
{
    struct lanes lanes;

    for (unsigned i = 0; i < PARTS; i++) {
        const uint8x8_t bits = vld1_u8(src + (size_t)8 * i);
        lanes.part[i] = vreinterpretq_u32_f32(vcvt_f32_f16(vreinterpret_f16_u8(bits)));
    }
    return lanes;
}

RFS_INLINE struct lanes load_bf16(const unsigned char *src)
{
    struct lanes lanes;

    for (unsigned i = 0; i < PARTS; i++)
        lanes.part[i] = vshll_n_u16(vreinterpret_u16_u8(vld1_u8(src + (size_t)8 * i)), 16);
    return lanes;
}

RFS_INLINE void store_f32(unsigned char *dst, struct lanes lanes)
{
    for (unsigned i = 0; i < PARTS; i++)
        vst1q_u8(dst + (size_t)16 * i, vreinterpretq_u8_u32(lanes.part[i]));
}

RFS_INLINE void store_f16(unsigned char *dst, struct lanes lanes)
{
    for (unsigned i = 0; i < PARTS; i++)
        vst1_u8(dst + (size_t)8 * i,
                vreinterpret_u8_f16(vcvt_f16_f32(vreinterpretq_f32_u32(lanes.part[i]))));
}

/* Returns BITS rounded. All NaNs become one and the same. */
RFS_INLINE uint16x4_t to_bf16(uint32x4_t bits)
{
    const uint32x4_t magnitude = vandq_u32(bits, vdupq_n_u32(0x7fffffff));
    const uint32x4_t nan = vcgtq_u32(magnitude, vdupq_n_u32(0x7f800000));
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));

    return vshrn_n_u32(vbslq_u32(nan, vdupq_n_u32(0x7fc00000), rounded), 16);
}

RFS_INLINE void store_bf16(unsigned char *dst, struct lanes lanes)
{
    for (unsigned i = 0; i < PARTS; i++)
        vst1_u8(dst + (size_t)8 * i, vreinterpret_u8_u16(to_bf16(lanes.part[i])));
}

#include "assemble/cast_loops.h"

size_t rfs_cast_vectors(enum rfs_dtype to, void *dst, enum rfs_dtype from, const void *src,
                        size_t count)
{
    loop_fn *const loop = loops[from][to];
    uint64_t control;

    if (!loop || count < STEP)
        return 0;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(control));
    if (control != 0)
        __asm__ __volatile__("msr fpcr, %0" : : "r"(UINT64_C(0)) : "memory");
    loop(dst, src, count / STEP);
    if (control != 0)
        __asm__ __volatile__("msr fpcr, %0" : : "r"(control) : "memory");
    return count / STEP * STEP;
}

#endif
