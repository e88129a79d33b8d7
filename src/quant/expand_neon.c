/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What expand_x86.c does, in registers of 16 bytes: numbers of BFloat16 come from tables of the
 * products of a scale, whose bytes are looked up for 16 codes at a time; others are computed, 16 at
 * a time. Codes that are NaNs, and scales that are no finite numbers, are left to the portable
 * loop, so no product is a NaN.
 */
#include "quant/expand.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#define RFS_INLINE static inline __attribute__((always_inline))

#define STEP 16
#define TABLE_STEP 32

/* The numbers that codes of 4 bits stand for. */
static const float numbers[][16] = {
    [RFS_QUANT_UINT4] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7},
    [RFS_QUANT_E2M1] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6},
    [RFS_QUANT_E2M1_0] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, 0, -0.5F, -1, -1.5F, -2, -3, -4, -6},
    [RFS_QUANT_E2M1_2] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0F, -1, -2, -3, -4, -6, -8, -12},
};
/* Fractions of Float8E4M3FN: subnormal numbers, and those with an exponent of 0 as any other. */
static const float fractions[16] = {0,        0x1p-9F,  0x2p-9F,  0x3p-9F,  0x4p-9F,  0x5p-9F,
                                    0x6p-9F,  0x7p-9F,  0x8p-10F, 0x9p-10F, 0xap-10F, 0xbp-10F,
                                    0xcp-10F, 0xdp-10F, 0xep-10F, 0xfp-10F};

/* The bytes of 16 BFloat16, apart. */
struct table {
    uint8x16_t low, high;
};

/* Returns the upper halves of 4 Float32, rounded. None is a NaN. */
RFS_INLINE uint16x4_t to_bf16(float32x4_t value)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(value);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));

    return vshrn_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
}

/* Makes the table of the products of 16 numbers less ZERO. */
RFS_INLINE struct table make_table(const float *of, float scale, float zero)
{
    uint16x8_t words[2];

    for (unsigned i = 0; i < 2; i++) {
        const float32x4_t a = vsubq_f32(vld1q_f32(of + (size_t)8 * i), vdupq_n_f32(zero));
        const float32x4_t b = vsubq_f32(vld1q_f32(of + (size_t)8 * i + 4), vdupq_n_f32(zero));
        words[i] = vcombine_u16(to_bf16(vmulq_n_f32(a, scale)), to_bf16(vmulq_n_f32(b, scale)));
    }
    return (struct table){
        vcombine_u8(vmovn_u16(words[0]), vmovn_u16(words[1])),
        vcombine_u8(vshrn_n_u16(words[0], 8), vshrn_n_u16(words[1], 8)),
    };
}

/* Returns 32 codes of 4 bits, each in a byte. */
RFS_INLINE uint8x16x2_t codes_of_4(const unsigned char *codes)
{
    const uint8x16_t packed = vld1q_u8(codes);
    const uint8x16_t even = vandq_u8(packed, vdupq_n_u8(15));
    const uint8x16_t odd = vshrq_n_u8(packed, 4);

    return vzipq_u8(even, odd);
}

/* Stores 16 BFloat16. */
RFS_INLINE void look_up(unsigned char *dst, uint8x16_t places, const struct table *table)
{
    vst2q_u8(dst,
             ((uint8x16x2_t){{vqtbl1q_u8(table->low, places), vqtbl1q_u8(table->high, places)}}));
}

/* Says whether one of 16 codes is a NaN. */
RFS_INLINE bool has_nan(uint8x16_t codes)
{
    return vmaxvq_u8(vandq_u8(codes, vdupq_n_u8(0x7f))) == 0x7f;
}

/* Stores 16 products of Float8E4M3FN, none of whose codes is a NaN. */
RFS_INLINE void look_up_e4m3(unsigned char *dst, uint8x16_t codes, const struct table *table)
{
    const uint8x16_t magnitude = vandq_u8(codes, vdupq_n_u8(0x7f));
    const uint8x16_t fraction = vorrq_u8(vandq_u8(codes, vdupq_n_u8(7)), vdupq_n_u8(8));
    const uint8x16_t places = vminq_u8(magnitude, fraction);
    const uint8x16_t exponent = vandq_u8(codes, vdupq_n_u8(0x78));
    const uint8x16_t lower = vqtbl1q_u8(table->low, places);
    const uint8x16_t upper =
        veorq_u8(vqtbl1q_u8(table->high, places), vandq_u8(codes, vdupq_n_u8(0x80)));
    const uint8x16x2_t words = vzipq_u8(lower, upper);
    const uint16x8_t first = vshll_n_u8(vget_low_u8(exponent), 4);
    const uint16x8_t last = vshll_n_u8(vget_high_u8(exponent), 4);

    vst1q_u8(dst, vreinterpretq_u8_u16(vaddq_u16(vreinterpretq_u16_u8(words.val[0]), first)));
    vst1q_u8(dst + 16, vreinterpretq_u8_u16(vaddq_u16(vreinterpretq_u16_u8(words.val[1]), last)));
}

/* Says whether products with a scale are those of a table. */
static bool fits_table(enum rfs_quant_code code, float scale)
{
    const float size = __builtin_fabsf(scale);

    /* Powers of 2 may be left out of products only while neither is subnormal nor infinite. */
    return code == RFS_QUANT_E4M3 ? size >= 0x1p-100F && size <= 0x1p100F
                                  : __builtin_isfinite(scale);
}

/* Stores 32 products. False: a code is a NaN, and nothing is written. */
RFS_INLINE bool expand_32(bool halves, unsigned char *dst, const unsigned char *codes,
                          const struct table *table)
{
    if (halves) {
        const uint8x16x2_t places = codes_of_4(codes);
        look_up(dst, places.val[0], table);
        look_up(dst + 32, places.val[1], table);
        return true;
    }
    const uint8x16_t first = vld1q_u8(codes);
    const uint8x16_t last = vld1q_u8(codes + 16);
    if (has_nan(first) || has_nan(last))
        return false;
    look_up_e4m3(dst, first, table);
    look_up_e4m3(dst + 32, last, table);
    return true;
}

/* Expands whole steps of blocks, to the first codes that are left to others. */
RFS_INLINE size_t by_tables(bool halves, const struct rfs_quant *quant, unsigned char *dst,
                            const struct rfs_quant_row *row, size_t i)
{
    const enum rfs_quant_code code = (enum rfs_quant_code)quant->code;
    size_t k = rfs_quant_block_at(quant, row, i);
    size_t end = rfs_quant_block_end(quant, row, k);

    for (; i < row->n; k++, end += (size_t)quant->block_cols) {
        const size_t stop = end < row->n ? end : row->n;
        const uint64_t at = row->at + i;
        const unsigned char *codes = row->codes + (halves ? at / 2 : at);
        if (stop - i < TABLE_STEP || (halves && at % 2 != 0) || !fits_table(code, row->scales[k]))
            return i;
        const bool shifted = code == RFS_QUANT_UINT4 && row->zeros;
        const struct table table = make_table(halves ? numbers[code] : fractions, row->scales[k],
                                              shifted ? row->zeros[k] : 0);
        for (; i + TABLE_STEP <= stop; i += TABLE_STEP) {
            if (!expand_32(halves, dst + 2 * i, codes, &table))
                return i;
            codes += halves ? TABLE_STEP / 2 : TABLE_STEP;
        }
        if (i < stop)
            return i;
    }
    return i;
}

size_t rfs_quant_expand_tables(const struct rfs_quant *quant, unsigned char *dst,
                               const struct rfs_quant_row *row, size_t from)
{
    if (quant->to != RFS_BFLOAT16 || quant->round == RFS_FLOAT16)
        return from;
    if (quant->code == RFS_QUANT_E4M3)
        return by_tables(false, quant, dst, row, from);
    return quant->code >= RFS_QUANT_UINT4 ? by_tables(true, quant, dst, row, from) : from;
}

/* ---- others ---------------------------------------------------------------------------------- */

/* 16 Float32. */
struct lanes {
    float32x4_t part[4];
};

/* Returns the numbers of 16 integers of 16 bits. */
RFS_INLINE struct lanes of_integers(int16x8_t a, int16x8_t b)
{
    return (struct lanes){
        {vcvtq_f32_s32(vmovl_s16(vget_low_s16(a))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(a))),
         vcvtq_f32_s32(vmovl_s16(vget_low_s16(b))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(b)))}};
}

/* Returns the numbers of 16 bytes with ADDED in them. */
RFS_INLINE struct lanes of_bytes(uint8x16_t bytes, uint8_t added)
{
    const uint8x8_t less = vdup_n_u8(added);

    return of_integers(vreinterpretq_s16_u16(vsubl_u8(vget_low_u8(bytes), less)),
                       vreinterpretq_s16_u16(vsubl_u8(vget_high_u8(bytes), less)));
}

/* Returns 16 BFloat16, whose bytes are apart. */
RFS_INLINE struct lanes of_words(uint8x16_t low, uint8x16_t high)
{
    const uint8x16x2_t words = vzipq_u8(low, high);
    struct lanes lanes;

    for (unsigned i = 0; i < 2; i++) {
        const uint16x8_t word = vreinterpretq_u16_u8(words.val[i]);
        lanes.part[(size_t)2 * i] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(word), 16));
        lanes.part[(size_t)2 * i + 1] = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(word), 16));
    }
    return lanes;
}

/* Returns the numbers of 16 codes of Float8E4M3FN, by the table of its fractions. */
RFS_INLINE struct lanes of_e4m3(uint8x16_t codes, const struct table *table)
{
    unsigned char words[2 * STEP];

    look_up_e4m3(words, codes, table);
    const uint8x16x2_t bytes = vld2q_u8(words);
    return of_words(bytes.val[0], bytes.val[1]);
}

/* Returns 16 codes of 4 bits, each in a byte, from an even code on. */
RFS_INLINE uint8x16_t nibbles(const unsigned char *codes)
{
    const uint8x8_t packed = vld1_u8(codes);
    const uint8x8x2_t zipped = vzip_u8(vand_u8(packed, vdup_n_u8(15)), vshr_n_u8(packed, 4));

    return vcombine_u8(zipped.val[0], zipped.val[1]);
}

RFS_INLINE void store(const struct rfs_quant *quant, unsigned char *dst, const struct lanes *lanes)
{
    for (unsigned i = 0; i < 4; i++) {
        const float32x4_t value = lanes->part[i];
        if (quant->to == RFS_BFLOAT16)
            vst1_u8(dst + (size_t)8 * i, vreinterpret_u8_u16(to_bf16(value)));
        else if (quant->round == RFS_BFLOAT16)
            vst1q_u8(dst + (size_t)16 * i, vreinterpretq_u8_u32(vshll_n_u16(to_bf16(value), 16)));
        else
            vst1q_u8(dst + (size_t)16 * i, vreinterpretq_u8_f32(value));
    }
}

/* Expands whole steps; CODE is known where it is called. */
RFS_INLINE size_t expand(enum rfs_quant_code code, const struct rfs_quant *quant,
                         unsigned char *dst, const unsigned char *codes, size_t n, float scale,
                         float zero)
{
    const bool halves = code >= RFS_QUANT_UINT4;
    const uint32_t item = rfs_dtype_bytes((enum rfs_dtype)quant->to);
    struct table table = {vdupq_n_u8(0), vdupq_n_u8(0)};
    size_t i = 0;

    if (code == RFS_QUANT_E4M3)
        table = make_table(fractions, 1, 0);
    else if (code > RFS_QUANT_UINT4)
        table = make_table(numbers[code], 1, 0);
    for (; i + STEP <= n; i += STEP) {
        const uint8x16_t bytes = halves ? nibbles(codes + i / 2) : vld1q_u8(codes + i);
        struct lanes lanes;
        if (code == RFS_QUANT_E4M3 && has_nan(bytes))
            break;
        if (code == RFS_QUANT_E4M3)
            lanes = of_e4m3(bytes, &table);
        else if (code == RFS_QUANT_INT8)
            lanes = of_integers(vmovl_s8(vget_low_s8(vreinterpretq_s8_u8(bytes))),
                                vmovl_s8(vget_high_s8(vreinterpretq_s8_u8(bytes))));
        else if (code == RFS_QUANT_UINT8 || code == RFS_QUANT_UINT4)
            lanes = of_bytes(bytes, code == RFS_QUANT_UINT8 ? 128 : 8);
        else
            lanes = of_words(vqtbl1q_u8(table.low, bytes), vqtbl1q_u8(table.high, bytes));
        for (unsigned k = 0; k < 4; k++)
            lanes.part[k] = vmulq_n_f32(vsubq_f32(lanes.part[k], vdupq_n_f32(zero)), scale);
        store(quant, dst + i * item, &lanes);
    }
    return i;
}

size_t rfs_quant_expand_vectors(const struct rfs_quant *quant, unsigned char *dst,
                                const unsigned char *codes, size_t n, float scale, float zero)
{
    switch ((enum rfs_quant_code)quant->code) {
    case RFS_QUANT_E4M3:
        return expand(RFS_QUANT_E4M3, quant, dst, codes, n, scale, 0);
    case RFS_QUANT_INT8:
        return expand(RFS_QUANT_INT8, quant, dst, codes, n, scale, zero);
    case RFS_QUANT_UINT8:
        return expand(RFS_QUANT_UINT8, quant, dst, codes, n, scale, zero);
    case RFS_QUANT_UINT4:
        return expand(RFS_QUANT_UINT4, quant, dst, codes, n, scale, zero);
    case RFS_QUANT_E2M1:
        return expand(RFS_QUANT_E2M1, quant, dst, codes, n, scale, 0);
    case RFS_QUANT_E2M1_0:
        return expand(RFS_QUANT_E2M1_0, quant, dst, codes, n, scale, 0);
    case RFS_QUANT_E2M1_2:
        return expand(RFS_QUANT_E2M1_2, quant, dst, codes, n, scale, 0);
    default:
        return 0;
    }
}

#endif
