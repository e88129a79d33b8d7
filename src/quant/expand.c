/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each code becomes a Float32, exactly, and each product is rounded to Float32. That product is
 * what a tensor of BFloat16 or Float16 scales rounds once to the scales' type: the product of two
 * numbers of such types is exact in Float32, up to subnormals.
 */
#include "quant/expand.h"

#include <assert.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Codes at once: loops of a known length are made of vectors. */
#define BLOCK 32

static inline float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

uint64_t rfs_quant_begin_math(void)
{
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(before));
    __asm__ __volatile__("msr fpcr, %0" : : "r"(UINT64_C(0)));
    return before;
#else
    return 0;
#endif
}

void rfs_quant_end_math(uint64_t before)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)before);
#elif defined(__aarch64__)
    __asm__ __volatile__("msr fpcr, %0" : : "r"(before));
#else
    (void)before;
#endif
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Makes no subnormal Float32 on the way: processors are slow with them. */
static inline float e4m3(uint8_t code)
{
    const uint32_t magnitude = code & 0x7f;
    const uint32_t sign = (uint32_t)(code & 0x80) << 24;
    const uint32_t normal = (magnitude << 20) + (120U << 23);
    const uint32_t subnormal = bits_of((float)(int)magnitude * 0x1p-9F);

    return of_bits(magnitude == 0x7f ? 0x7fc00000 : sign | (magnitude < 8 ? subnormal : normal));
}

static const float e2m1[16] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                               -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

static inline uint8_t nibble(const unsigned char *codes, uint64_t at)
{
    return (uint8_t)(at % 2 ? codes[at / 2] >> 4 : codes[at / 2] & 15);
}

/* Sets VALUES to what N codes stand for, at most BLOCK. */
static void decode(const struct rfs_quant *quant, const unsigned char *codes, uint64_t at, size_t n,
                   float zero, float *values)
{
    switch ((enum rfs_quant_code)quant->code) {
    case RFS_QUANT_E4M3:
        for (size_t i = 0; i < n; i++)
            values[i] = e4m3(codes[at + i]);
        break;
    case RFS_QUANT_INT8:
        for (size_t i = 0; i < n; i++)
            values[i] = (float)(int8_t)codes[at + i] - zero;
        break;
    case RFS_QUANT_UINT8:
        for (size_t i = 0; i < n; i++)
            values[i] = (float)(codes[at + i] - 128) - zero;
        break;
    case RFS_QUANT_PLAIN8:
        for (size_t i = 0; i < n; i++)
            values[i] = (float)codes[at + i] - zero;
        break;
    case RFS_QUANT_PLAIN4:
        for (size_t i = 0; i < n; i++)
            values[i] = (float)nibble(codes, at + i) - zero;
        break;
    case RFS_QUANT_UINT4:
        for (size_t i = 0; i < n; i++)
            values[i] = (float)(nibble(codes, at + i) - 8) - zero;
        break;
    case RFS_QUANT_E2M1:
        for (size_t i = 0; i < n; i++)
            values[i] = e2m1[nibble(codes, at + i)];
        break;
    case RFS_QUANT_E2M1_0:
        for (size_t i = 0; i < n; i++) /* -0 + 0 is 0 */
            values[i] = e2m1[nibble(codes, at + i)] + 0.0F;
        break;
    case RFS_QUANT_E2M1_2:
        for (size_t i = 0; i < n; i++)
            values[i] = 2 * e2m1[nibble(codes, at + i)];
        break;
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Makes all NaNs the same: processors give products other ones. */
static void unite_nans(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = of_bits(values[i] != values[i] ? 0x7fc00000 : bits_of(values[i]));
}

/* Returns the bits of a BFloat16. All NaNs become one. */
static inline uint16_t to_bf16(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (uint16_t)rounded;
}

/* Returns the Float16 that is nearest, as a Float32. */
static inline float round_f16(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t rounded = (magnitude + 0xfff + (magnitude >> 13 & 1)) & ~UINT32_C(0x1fff);

    if (magnitude > 0x7f800000)
        return value;
    if (magnitude < 0x38800000) { /* subnormal there: adding 0.75 leaves multiples of 2^-24 */
        const float sum = of_bits(magnitude) + 0.75F;
        return of_bits(bits_of(sum - 0.75F) | (bits & 0x80000000));
    }
    return of_bits((rounded >= 0x47800000 ? 0x7f800000 : rounded) | (bits & 0x80000000));
}

/* Rounds a block of numbers to the type that products are rounded to first. */
static void round_first(const struct rfs_quant *quant, float *values)
{
    if (quant->round == RFS_FLOAT16)
        for (size_t i = 0; i < BLOCK; i++)
            values[i] = round_f16(values[i]);
    if (quant->round == RFS_BFLOAT16)
        for (size_t i = 0; i < BLOCK; i++)
            values[i] = of_bits((uint32_t)to_bf16(values[i]) << 16);
}

/* Writes M numbers of a block, which may be changed. */
static void write_numbers(const struct rfs_quant *quant, unsigned char *dst, float *values,
                          size_t m)
{
    uint16_t narrow[BLOCK];

    if (quant->round == RFS_FLOAT16 || quant->to != RFS_BFLOAT16)
        round_first(quant, values);
    if (quant->to == RFS_BFLOAT16) {
        for (size_t i = 0; i < BLOCK; i++)
            narrow[i] = to_bf16(values[i]);
        memcpy(dst, narrow, m * sizeof *narrow);
    } else {
        unite_nans(values, BLOCK);
        memcpy(dst, values, m * sizeof *values);
    }
}

void rfs_quant_expand_portably(const struct rfs_quant *quant, unsigned char *dst,
                               const unsigned char *codes, uint64_t at, size_t n, float scale,
                               float zero)
{
    const bool affine = rfs_quant_is_affine(quant);
    float values[BLOCK] = {0};

    for (size_t m; n > 0; n -= m, at += m) {
        m = n < BLOCK ? n : BLOCK;
        decode(quant, codes, at, m, affine ? 0 : zero, values);
        for (size_t i = 0; i < BLOCK; i++)
            values[i] *= scale;
        if (quant->zero == RFS_QUANT_Z_PLUS)
            round_first(quant, values);
        for (size_t i = 0; affine && i < BLOCK; i++)
            values[i] += zero;
        write_numbers(quant, dst, values, m);
        dst += m * rfs_dtype_bytes((enum rfs_dtype)quant->to);
    }
}

void rfs_quant_expand_columns(const struct rfs_quant *quant, unsigned char *dst,
                              const unsigned char *codes, size_t n, const float *scales,
                              const float *zeros)
{
    float values[BLOCK] = {0};

    for (size_t m; n > 0; n -= m, codes += m, scales += m, zeros += m) {
        m = n < BLOCK ? n : BLOCK;
        if (m == BLOCK)
            for (size_t i = 0; i < BLOCK; i++)
                values[i] = ((float)codes[i] - zeros[i]) * scales[i];
        else
            for (size_t i = 0; i < m; i++)
                values[i] = ((float)codes[i] - zeros[i]) * scales[i];
        write_numbers(quant, dst, values, m);
        dst += m * rfs_dtype_bytes((enum rfs_dtype)quant->to);
    }
}

/* Expands N codes of one scale. */
static void expand_block(const struct rfs_quant *quant, unsigned char *dst,
                         const unsigned char *codes, uint64_t at, size_t n, float scale, float zero)
{
    const bool halves = rfs_quant_code_bits(quant) == 4;
    const bool vectors =
        quant->round != RFS_FLOAT16 && !(halves && at % 2 != 0) && __builtin_isfinite(scale);
    const size_t done =
        vectors
            ? rfs_quant_expand_vectors(quant, dst, codes + (halves ? at / 2 : at), n, scale, zero)
            : 0;

    if (done == n)
        return;
    rfs_quant_expand_portably(quant, dst + done * rfs_dtype_bytes((enum rfs_dtype)quant->to), codes,
                              at + done, n - done, scale, zero);
}

void rfs_quant_expand_row(const struct rfs_quant *quant, unsigned char *dst,
                          const struct rfs_quant_row *row)
{
    const uint32_t item = rfs_dtype_bytes((enum rfs_dtype)quant->to);

    for (size_t i = 0, n; i < row->n; i += n) {
        i = rfs_quant_expand_tables(quant, dst, row, i);
        if (i == row->n)
            break;
        const size_t k = rfs_quant_block_at(quant, row, i);
        const size_t end = rfs_quant_block_end(quant, row, k);
        n = (end < row->n ? end : row->n) - i;
        expand_block(quant, dst + i * item, row->codes, row->at + i, n, row->scales[k],
                     row->zeros ? row->zeros[k] : 0);
    }
}

void rfs_quant_expand(const struct rfs_quant *quant, unsigned char *dst, const unsigned char *codes,
                      uint64_t at, size_t n, float scale, float zero)
{
    const struct rfs_quant_row row = {codes, at, n, n, &scale, &zero};

    rfs_quant_expand_row(quant, dst, &row);
}

/* ---- scales ---------------------------------------------------------------------------------- */

static float of_f16(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    const uint32_t magnitude = bits & 0x7fff;

    if (magnitude >= 0x7c00)
        return of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    return of_bits(sign | magnitude << 13) * 0x1p112F;
}

/* Returns 2^(byte - BIAS). */
static float power(uint8_t byte, int bias)
{
    const int exponent = byte - bias;

    return exponent >= -126 ? of_bits((uint32_t)(exponent + 127) << 23)
                            : of_bits(UINT32_C(1) << (exponent + 149));
}

float rfs_quant_scale_value(const struct rfs_quant *quant, const unsigned char *at)
{
    uint32_t wide;
    uint16_t narrow;

    switch ((enum rfs_quant_scale)quant->scale) {
    case RFS_QUANT_S_F32:
        memcpy(&wide, at, sizeof wide);
        return of_bits(wide);
    case RFS_QUANT_S_BF16:
        memcpy(&narrow, at, sizeof narrow);
        return of_bits((uint32_t)narrow << 16);
    case RFS_QUANT_S_F16:
        memcpy(&narrow, at, sizeof narrow);
        return of_f16(narrow);
    case RFS_QUANT_S_E8M0:
        return *at == 255 ? of_bits(0x7fc00000) : power(*at, 127);
    case RFS_QUANT_S_EXPONENT:
        return *at == 255 ? of_bits(0x7f800000) : power(*at, 127);
    case RFS_QUANT_S_HALF:
        return power(*at, 128);
    case RFS_QUANT_S_E4M3:
        return e4m3(*at) / quant->whole;
    case RFS_QUANT_S_E4M3_BY:
        return e4m3(*at) * quant->whole;
    }
    return 0;
}

void rfs_quant_scale_values(const struct rfs_quant *quant, const unsigned char *at, size_t n,
                            float *values)
{
    const uint32_t item = rfs_quant_scale_bytes(quant);
    uint16_t narrow;

    if (quant->scale != RFS_QUANT_S_BF16) {
        for (size_t i = 0; i < n; i++)
            values[i] = rfs_quant_scale_value(quant, at + i * item);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(&narrow, at + i * sizeof narrow, sizeof narrow);
        values[i] = of_bits((uint32_t)narrow << 16);
    }
}

/* ---- blocks with the scales in them ---------------------------------------------------------- */

/*
 * SCALE * s is exact in Float32, as are MIN * m and the products with codes of up to 8 bits. So
 * there is one rounding at most, that of the difference, whether a processor fuses it or not.
 */

static float f16_at(const unsigned char *at)
{
    uint16_t bits;

    memcpy(&bits, at, sizeof bits);
    return of_f16(bits);
}

static void expand_q4_0(const unsigned char *block, float *out)
{
    const float scale = f16_at(block);
    const unsigned char *codes = block + 2;

    for (size_t i = 0; i < 16; i++) {
        out[i] = scale * (float)((codes[i] & 15) - 8);
        out[i + 16] = scale * (float)((codes[i] >> 4) - 8);
    }
}

static void expand_q8_0(const unsigned char *block, float *out)
{
    const float scale = f16_at(block);

    for (size_t i = 0; i < 32; i++)
        out[i] = scale * (float)(int8_t)block[2 + i];
}

/* Expands Q4_K, or Q5_K, whose codes have a fifth bit each in HIGH: bit J / 32 of byte J % 32. */
static void expand_with_min(const unsigned char *block, const unsigned char *high,
                            const unsigned char *codes, float *out)
{
    const float scale = f16_at(block);
    const float min = f16_at(block + 2);
    const unsigned char *packed = block + 4; /* 6 bits each: s 0-3, m 0-3, and the rest of 4-7 */

    for (unsigned j = 0; j < 8; j++, out += 32) {
        const unsigned char *low = packed + j % 4;
        const int s = j < 4 ? low[0] & 63 : (low[8] & 15) | (low[0] >> 6 << 4);
        const int m = j < 4 ? low[4] & 63 : (low[8] >> 4) | (low[4] >> 6 << 4);
        const float by = scale * (float)s;
        const float less = min * (float)m;
        const unsigned char *from = codes + j / 2 * 32;
        for (size_t i = 0; i < 32; i++) {
            const int fifth = high ? (high[i] >> j) & 1 : 0;
            const int code = ((from[i] >> (j % 2 * 4)) & 15) | (fifth << 4);
            out[i] = by * (float)code - less;
        }
    }
}

static void expand_q6_k(const unsigned char *block, float *out)
{
    const unsigned char *low = block;
    const unsigned char *high = block + 128;
    const unsigned char *scales = block + 192;
    const float scale = f16_at(block + 208);

    for (unsigned j = 0; j < 8; j++, out += 32) { /* 4 of 32 numbers share 64 and 32 bytes */
        const unsigned char *from = low + j / 4 * 64 + j % 2 * 32;
        const unsigned char *upper = high + j / 4 * 32;
        for (size_t i = 0; i < 32; i++) {
            const int top = (upper[i] >> (j % 4 * 2)) & 3;
            const int code = ((from[i] >> (j % 4 / 2 * 4)) & 15) | (top << 4);
            out[i] = scale * (float)(int8_t)scales[j * 2 + i / 16] * (float)(code - 32);
        }
    }
}

void rfs_quant_expand_block(const struct rfs_quant *quant, unsigned char *dst,
                            const unsigned char *block)
{
    const size_t n = (size_t)quant->block_cols;
    float values[RFS_QUANT_BLOCK_MOST];
    uint16_t narrow[RFS_QUANT_BLOCK_MOST];

    switch (quant->block) {
    case RFS_Q4_0:
        expand_q4_0(block, values);
        break;
    case RFS_Q8_0:
        expand_q8_0(block, values);
        break;
    case RFS_Q4_K:
        expand_with_min(block, NULL, block + 16, values);
        break;
    case RFS_Q5_K:
        expand_with_min(block, block + 16, block + 48, values);
        break;
    case RFS_Q6_K:
        expand_q6_k(block, values);
        break;
    default:
        assert(false);
        return;
    }
    if (quant->to != RFS_BFLOAT16) {
        unite_nans(values, n);
        memcpy(dst, values, n * sizeof *values);
        return;
    }
    for (size_t i = 0; i < n; i++)
        narrow[i] = to_bf16(values[i]);
    memcpy(dst, narrow, n * sizeof *narrow);
}
