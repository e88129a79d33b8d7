/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Integers all along, so that neither a rounding mode nor a flag that flushes subnormals matters,
 * and without branches, so that compilers make vectors of them. A format has F bits of fraction and
 * E of exponent:
 *
 *     s | e e e e … | f f f f …        value  (-1)^s · 2^(e - bias) · 1.f      bias = 2^(E-1) - 1
 *                                      e = 0: (-1)^s · 2^(1 - bias) · 0.f
 *                                      e all ones: infinite if f = 0, else a NaN
 *
 *     Float64  F 52 E 11    Float32  F 23 E 8    Float16  F 10 E 5    BFloat16  F 7 E 8
 *     Float8E5M2  F 2 E 5   Float8E4M3FN  F 3 E 4, where e all ones is as any other, and a NaN only
 *                                         if f is all ones, too
 *
 * Float16 and BFloat16 become one another by way of Float32, which holds both, so there is one
 * rounding.
 */
#include "assemble/cast.h"

#include "assemble/cast_vectors.h"

#include <assert.h>

/* Loops of a known length are made of vectors without much ado, and a copy aligns the elements. */
#define BLOCK 32

#define BIAS(e) ((1 << ((e)-1)) - 1)
#define INFINITE(type, f, e) ((type)(((type)1 << (e)) - 1) << (f))

/*
 * Returns the bits of a value of FF + FE bits in TF + TE bits, which are fewer. Below the least
 * normal one of the target, the fraction with its leading 1 is shifted to where the target's
 * subnormals have it; bits that are shifted out by both are 0. With ONE_NAN, all NaNs become the
 * one without a sign and a payload.
 */
#define NARROWER(name, type, ff, fe, tf, te, one_nan)                                              \
    static inline type name(type bits)                                                             \
    {                                                                                              \
        const type magnitude = bits & (((type)1 << ((ff) + (fe))) - 1);                            \
        const type sign = bits >> ((ff) + (fe)) << ((tf) + (te));                                  \
        const type dropped = (ff) - (tf);                                                          \
        const type rebias = (type)(BIAS(fe) - BIAS(te));                                           \
        const type infinite = INFINITE(type, tf, te);                                              \
        const type base = magnitude - (rebias << (ff));                                            \
        const type half = ((type)1 << (dropped - 1)) - 1 + (base >> dropped & 1);                  \
        const type rounded = (base + half) >> dropped;                                             \
        const type normal = rounded < infinite ? rounded : infinite;                               \
        const type lead = (type)1 << (ff);                                                         \
        const type fraction = (magnitude & (lead - 1)) | lead;                                     \
        const type wanted = dropped + rebias + 1 - (magnitude >> (ff));                            \
        const type shift = wanted - 1 <= (ff) ? wanted : (ff) + 2;                                 \
        const type tie = ((type)1 << (shift - 1)) - 1 + (fraction >> shift & 1);                   \
        const type tiny = (fraction + tie) >> shift;                                               \
        const type quiet = infinite | (type)1 << ((tf)-1);                                         \
        const type nan = quiet | (magnitude >> dropped & (((type)1 << (tf)) - 1));                 \
        const bool is_tiny = (fe) != (te) && magnitude < (rebias + 1) << (ff);                     \
        const type finite = is_tiny ? tiny : normal;                                               \
        const type number = sign | finite;                                                         \
        const type other = (one_nan) ? quiet : sign | nan;                                         \
        return magnitude > INFINITE(type, ff, fe) ? other : number;                                \
    }

/*
 * Returns the bits in a wider type: always exact. A subnormal's fraction is taken as the integer
 * that it is and scaled by the REAL type that has the target's format; it and its product are
 * normal, or zero.
 */
#define WIDER(name, type, real, ff, fe, tf, te, least)                                             \
    static inline type name(type bits)                                                             \
    {                                                                                              \
        const type magnitude = bits & (((type)1 << ((ff) + (fe))) - 1);                            \
        const type sign = bits >> ((ff) + (fe)) << ((tf) + (te));                                  \
        const type added = (tf) - (ff);                                                            \
        const type rebias = (type)(BIAS(te) - BIAS(fe));                                           \
        const type normal = (magnitude << added) + (rebias << (tf));                               \
        const real scaled = (real)(int32_t)magnitude * (real)(least);                              \
        type subnormal;                                                                            \
        memcpy(&subnormal, &scaled, sizeof subnormal);                                             \
        const type quiet = (type)(magnitude > INFINITE(type, ff, fe)) << ((tf)-1);                 \
        const type special = magnitude << added | INFINITE(type, tf, te) | quiet;                  \
        const type finite = magnitude < (type)1 << (ff) ? subnormal : normal;                      \
        return sign | (magnitude >= INFINITE(type, ff, fe) ? special : finite);                    \
    }

NARROWER(f64_as_f32, uint64_t, 52, 11, 23, 8, false)
NARROWER(f64_as_f16, uint64_t, 52, 11, 10, 5, false)
NARROWER(f64_as_bf16, uint64_t, 52, 11, 7, 8, true)
NARROWER(f32_as_f16, uint32_t, 23, 8, 10, 5, false)
NARROWER(f32_as_bf16, uint32_t, 23, 8, 7, 8, true)
WIDER(f16_as_f32, uint32_t, float, 10, 5, 23, 8, 0x1p-24)
WIDER(f16_as_f64, uint64_t, double, 10, 5, 52, 11, 0x1p-24)
WIDER(f32_as_f64, uint64_t, double, 23, 8, 52, 11, 0x1p-149)
WIDER(e5m2_as_f32, uint32_t, float, 2, 5, 23, 8, 0x1p-16)

static inline uint32_t bf16_as_f32(uint32_t bits)
{
    return bits << 16;
}

static inline uint64_t bf16_as_f64(uint64_t bits)
{
    return f32_as_f64(bits << 16);
}

static inline uint32_t f16_as_bf16(uint32_t bits)
{
    return f32_as_bf16(f16_as_f32(bits));
}

static inline uint32_t bf16_as_f16(uint32_t bits)
{
    return f32_as_f16(bits << 16);
}

static inline uint32_t f64_as_f32_as_f16(uint64_t bits)
{
    return f32_as_f16((uint32_t)f64_as_f32(bits));
}

static inline uint32_t f64_as_f32_as_bf16(uint64_t bits)
{
    return f32_as_bf16((uint32_t)f64_as_f32(bits));
}

static uint32_t e4m3fn_as_f32(uint32_t bits)
{
    const uint32_t sign = bits >> 7 << 31;
    const uint32_t magnitude = bits & 0x7f;
    const float scaled = (float)(int32_t)magnitude * 0x1p-9f;
    uint32_t subnormal;

    memcpy(&subnormal, &scaled, sizeof subnormal);
    if (magnitude == 0x7f)
        return sign | 0x7ff00000;
    return sign | (magnitude < 8 ? subnormal : (magnitude << 20) + ((127 - 7) << 23));
}

#define LOOP(name, to_type, from_type)                                                             \
    static void loop_##name(unsigned char *restrict dst, const unsigned char *restrict src,        \
                            size_t count)                                                          \
    {                                                                                              \
        from_type in[BLOCK] = {0};                                                                 \
        to_type out[BLOCK];                                                                        \
        for (; count > 0; count -= count < BLOCK ? count : BLOCK) {                                \
            const size_t n = count < BLOCK ? count : BLOCK;                                        \
            memcpy(in, src, n == BLOCK ? sizeof in : n * sizeof *in);                              \
            for (size_t i = 0; i < BLOCK; i++)                                                     \
                out[i] = (to_type)name(in[i]);                                                     \
            memcpy(dst, out, n == BLOCK ? sizeof out : n * sizeof *out);                           \
            src += sizeof in;                                                                      \
            dst += sizeof out;                                                                     \
        }                                                                                          \
    }

LOOP(f64_as_f32, uint32_t, uint64_t)
LOOP(f64_as_f16, uint16_t, uint64_t)
LOOP(f64_as_bf16, uint16_t, uint64_t)
LOOP(f64_as_f32_as_f16, uint16_t, uint64_t)
LOOP(f64_as_f32_as_bf16, uint16_t, uint64_t)
LOOP(f32_as_f64, uint64_t, uint32_t)
LOOP(f32_as_f16, uint16_t, uint32_t)
LOOP(f32_as_bf16, uint16_t, uint32_t)
LOOP(f16_as_f64, uint64_t, uint16_t)
LOOP(f16_as_f32, uint32_t, uint16_t)
LOOP(f16_as_bf16, uint16_t, uint16_t)
LOOP(bf16_as_f64, uint64_t, uint16_t)
LOOP(bf16_as_f32, uint32_t, uint16_t)
LOOP(bf16_as_f16, uint16_t, uint16_t)

typedef void loop_fn(unsigned char *restrict, const unsigned char *restrict, size_t);

static loop_fn *const loops[RFS_DTYPE_COUNT][RFS_DTYPE_COUNT] = {
    [RFS_FLOAT64] = {[RFS_FLOAT32] = loop_f64_as_f32,
                     [RFS_FLOAT16] = loop_f64_as_f16,
                     [RFS_BFLOAT16] = loop_f64_as_bf16},
    [RFS_FLOAT32] = {[RFS_FLOAT64] = loop_f32_as_f64,
                     [RFS_FLOAT16] = loop_f32_as_f16,
                     [RFS_BFLOAT16] = loop_f32_as_bf16},
    [RFS_FLOAT16] = {[RFS_FLOAT64] = loop_f16_as_f64,
                     [RFS_FLOAT32] = loop_f16_as_f32,
                     [RFS_BFLOAT16] = loop_f16_as_bf16},
    [RFS_BFLOAT16] = {[RFS_FLOAT64] = loop_bf16_as_f64,
                      [RFS_FLOAT32] = loop_bf16_as_f32,
                      [RFS_FLOAT16] = loop_bf16_as_f16},
};

/* Casts by a table of all values of 8 bits, which every target holds exactly. */
#define TABLE(name, type)                                                                          \
    static void name(unsigned char *dst, enum rfs_dtype to, const uint32_t *wide,                  \
                     const unsigned char *src, size_t count)                                       \
    {                                                                                              \
        type values[256];                                                                          \
        rfs_cast_portably(to, values, RFS_FLOAT32, wide, 256);                                     \
        for (size_t i = 0; i < count; i++)                                                         \
            memcpy(dst + i * sizeof *values, &values[src[i]], sizeof *values);                     \
    }

TABLE(cast_f8_to_2_bytes, uint16_t)
TABLE(cast_f8_to_4_bytes, uint32_t)
TABLE(cast_f8_to_8_bytes, uint64_t)

static void cast_f8(enum rfs_dtype to, unsigned char *dst, enum rfs_dtype from,
                    const unsigned char *src, size_t count)
{
    uint32_t wide[256];

    for (uint32_t bits = 0; bits < 256; bits++)
        wide[bits] = from == RFS_FLOAT8_E5M2 ? e5m2_as_f32(bits) : e4m3fn_as_f32(bits);
    if (rfs_dtype_bytes(to) == 2)
        cast_f8_to_2_bytes(dst, to, wide, src, count);
    else if (rfs_dtype_bytes(to) == 4)
        cast_f8_to_4_bytes(dst, to, wide, src, count);
    else
        cast_f8_to_8_bytes(dst, to, wide, src, count);
}

void rfs_cast_portably(enum rfs_dtype to, void *dst, enum rfs_dtype from, const void *src,
                       size_t count)
{
    if (to == from)
        memcpy(dst, src, count * rfs_dtype_bytes(to));
    else if (from == RFS_FLOAT8_E4M3FN || from == RFS_FLOAT8_E5M2)
        cast_f8(to, dst, from, src, count);
    else
        loops[from][to](dst, src, count);
}

void rfs_cast(enum rfs_dtype to, void *dst, enum rfs_dtype from, const void *src, size_t count)
{
    assert(rfs_dtype_is_float(from) && rfs_dtype_is_float_target(to));
    const size_t done = rfs_cast_vectors(to, dst, from, src, count);
    rfs_cast_portably(to, (unsigned char *)dst + done * rfs_dtype_bytes(to), from,
                      (const unsigned char *)src + done * rfs_dtype_bytes(from), count - done);
}

void rfs_cast_by_float32(enum rfs_dtype to, void *dst, const void *src, size_t count)
{
    assert(rfs_dtype_bytes(to) == 2);
    (to == RFS_FLOAT16 ? loop_f64_as_f32_as_f16 : loop_f64_as_f32_as_bf16)(dst, src, count);
}
