/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of BFloat16 come from tables: 16 codes of 4 bits and a scale have 16 products. Codes of
 * Float8E4M3FN have 16 as well, of 8 fractions and 8 subnormal numbers; powers of 2 are added to
 * exponents. The products are made once for a block, and their bytes are looked up for 32 codes at
 * a time.
 *
 * Others: 16 codes at a time. Where BFloat16 holds the number of every code, codes become BFloat16
 * in lanes of 16 bits: those of 4 bits by a table, those of Float8E4M3FN by a shift and a new bias,
 * and subnormal ones by a table. As the upper halves of Float32 they are multiplied then. Codes
 * that are NaNs, and scales that are no finite numbers, are left to the portable loop; so no
 * product is a NaN.
 */
#include "quant/expand.h"

#if defined(__x86_64__)

#include "base/processor.h"

#include <immintrin.h>

#define RFS_AVX2 __attribute__((target("avx2")))
#define RFS_INLINE static inline __attribute__((target("avx2"), always_inline))

#define STEP 16

/* Returns 16 codes of 4 bits, each in a byte, from an even code on. */
RFS_INLINE __m128i nibbles(const unsigned char *codes)
{
    const __m128i packed = _mm_loadl_epi64((const __m128i_u *)codes);
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i low = _mm_and_si128(packed, mask);
    const __m128i high = _mm_and_si128(_mm_srli_epi16(packed, 4), mask);
    return _mm_unpacklo_epi8(low, high);
}

/* Returns the numbers of 8 codes, each in a byte. */
RFS_INLINE __m256 values_of(enum rfs_quant_code code, __m128i bytes, __m256 zero)
{
    if (code == RFS_QUANT_INT8)
        return _mm256_sub_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), zero);
    const __m256i wide = _mm256_cvtepu8_epi32(bytes);
    const int added = code == RFS_QUANT_UINT8 ? 128 : 8;
    return _mm256_sub_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(wide, _mm256_set1_epi32(added))),
                         zero);
}

/* Returns 16 BFloat16 by two tables of their lower and upper bytes; the codes are below 16. */
RFS_INLINE __m256i by_table(__m128i bytes, __m128i low, __m128i high)
{
    const __m128i lower = _mm_shuffle_epi8(low, bytes);
    const __m128i upper = _mm_shuffle_epi8(high, bytes);
    return _mm256_set_m128i(_mm_unpackhi_epi8(lower, upper), _mm_unpacklo_epi8(lower, upper));
}

/* Returns the numbers of 16 codes, each in a byte, as BFloat16. */
RFS_INLINE __m256i words_of(enum rfs_quant_code code, __m128i bytes)
{
    /* 0 0.5 1 1.5 2 3 4 6, and with a sign; times two; -8 … 7 */
    const __m128i e2m1_low =
        _mm_setr_epi8(0, 0, (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0, 0, 0,
                      (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0);
    const __m128i e2m1_high =
        _mm_setr_epi8(0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, (char)0x80, (char)0xbf,
                      (char)0xbf, (char)0xbf, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0);
    const __m128i twice_low =
        _mm_setr_epi8(0, (char)0x80, 0, 0x40, (char)0x80, (char)0xc0, 0, 0x40, 0, (char)0x80, 0,
                      0x40, (char)0x80, (char)0xc0, 0, 0x40);
    const __m128i twice_high =
        _mm_setr_epi8(0, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x41, 0x41, (char)0x80, (char)0xbf,
                      (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc1, (char)0xc1);
    const __m128i int4_low =
        _mm_setr_epi8(0, (char)0xe0, (char)0xc0, (char)0xa0, (char)0x80, 0x40, 0, (char)0x80, 0,
                      (char)0x80, 0, 0x40, (char)0x80, (char)0xa0, (char)0xc0, (char)0xe0);
    const __m128i int4_high =
        _mm_setr_epi8((char)0xc1, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0,
                      (char)0xc0, (char)0xbf, 0, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40);
    if (code == RFS_QUANT_E2M1)
        return by_table(bytes, e2m1_low, e2m1_high);
    if (code == RFS_QUANT_E2M1_0)
        return by_table(bytes, e2m1_low, _mm_insert_epi8(e2m1_high, 0, 8));
    if (code == RFS_QUANT_E2M1_2)
        return by_table(bytes, twice_low, twice_high);
    if (code == RFS_QUANT_UINT4)
        return by_table(bytes, int4_low, int4_high);
    /* m * 2^-9 for m from 0 to 7 */
    const __m256i tiny =
        _mm256_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60, 0, 0x3b00,
                          0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60);
    const __m256i wide = _mm256_cvtepu8_epi16(bytes);
    const __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_slli_epi16(_mm256_srli_epi16(wide, 7), 15);
    const __m256i normal =
        _mm256_add_epi16(_mm256_slli_epi16(magnitude, 4), _mm256_set1_epi16(120 << 7));
    const __m256i places = _mm256_add_epi16(
        _mm256_mullo_epi16(magnitude, _mm256_set1_epi16(0x0202)), _mm256_set1_epi16(0x0100));
    const __m256i is_tiny = _mm256_cmpgt_epi16(_mm256_set1_epi16(8), magnitude);
    const __m256i value = _mm256_blendv_epi8(normal, _mm256_shuffle_epi8(tiny, places), is_tiny);
    return _mm256_or_si256(value, sign);
}

/*
 * Returns the bits of 8 BFloat16, in the upper halves of words whose lower halves are of no use.
 * None is a NaN.
 */
RFS_INLINE __m256i to_bf16(__m256 value)
{
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));

    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}

/* Stores numbers 0 to 3 and 8 to 11 of A, and the others of B, in their order. */
RFS_INLINE void store(const struct rfs_quant *quant, unsigned char *dst, __m256 a, __m256 b)
{
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000);

    if (quant->to == RFS_BFLOAT16) {
        _mm256_storeu_si256((__m256i_u *)dst,
                            _mm256_packus_epi32(_mm256_srli_epi32(to_bf16(a), 16),
                                                _mm256_srli_epi32(to_bf16(b), 16)));
        return;
    }
    if (quant->round == RFS_BFLOAT16) {
        a = _mm256_castsi256_ps(_mm256_and_si256(to_bf16(a), upper));
        b = _mm256_castsi256_ps(_mm256_and_si256(to_bf16(b), upper));
    }
    _mm256_storeu_ps((float *)(void *)dst, _mm256_permute2f128_ps(a, b, 0x20));
    _mm256_storeu_ps((float *)(void *)(dst + 32), _mm256_permute2f128_ps(a, b, 0x31));
}

/* PLAIN: the code alone says the number, and it is a BFloat16. */
RFS_INLINE size_t expand(enum rfs_quant_code code, bool plain, const struct rfs_quant *quant,
                         unsigned char *dst, const unsigned char *codes, size_t n, float scale,
                         float zero)
{
    const __m256 scales = _mm256_set1_ps(scale);
    const __m256 zeros = _mm256_set1_ps(zero);
    const __m128i magnitude = _mm_set1_epi8(0x7f);
    const uint32_t item = rfs_dtype_bytes((enum rfs_dtype)quant->to);
    size_t i = 0;

    for (; i + STEP <= n; i += STEP) {
        const __m128i bytes = code >= RFS_QUANT_PLAIN4
                                  ? nibbles(codes + i / 2)
                                  : _mm_loadu_si128((const __m128i_u *)(codes + i));
        __m256 a, b; /* numbers 0 to 3 and 8 to 11, and the others */
        if (code == RFS_QUANT_E4M3 &&
            _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_and_si128(bytes, magnitude), magnitude)) != 0)
            break;
        if (plain) {
            const __m256i words = words_of(code, bytes);
            const __m256i none = _mm256_setzero_si256();
            a = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, words));
            b = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, words));
        } else {
            const __m256 first = values_of(code, bytes, zeros);
            const __m256 last = values_of(code, _mm_srli_si128(bytes, 8), zeros);
            a = _mm256_permute2f128_ps(first, last, 0x20);
            b = _mm256_permute2f128_ps(first, last, 0x31);
        }
        a = _mm256_mul_ps(a, scales);
        b = _mm256_mul_ps(b, scales);
        store(quant, dst + i * item, a, b);
    }
    return i;
}

RFS_AVX2 static size_t by_code(const struct rfs_quant *quant, unsigned char *dst,
                               const unsigned char *codes, size_t n, float scale, float zero)
{
    switch ((enum rfs_quant_code)quant->code) {
    case RFS_QUANT_E4M3:
        return expand(RFS_QUANT_E4M3, true, quant, dst, codes, n, scale, zero);
    case RFS_QUANT_INT8:
        return expand(RFS_QUANT_INT8, false, quant, dst, codes, n, scale, zero);
    case RFS_QUANT_UINT8:
        return expand(RFS_QUANT_UINT8, false, quant, dst, codes, n, scale, zero);
    case RFS_QUANT_UINT4:
        return zero != 0 ? expand(RFS_QUANT_UINT4, false, quant, dst, codes, n, scale, zero)
                         : expand(RFS_QUANT_UINT4, true, quant, dst, codes, n, scale, zero);
    case RFS_QUANT_E2M1:
        return expand(RFS_QUANT_E2M1, true, quant, dst, codes, n, scale, zero);
    case RFS_QUANT_E2M1_0:
        return expand(RFS_QUANT_E2M1_0, true, quant, dst, codes, n, scale, zero);
    case RFS_QUANT_E2M1_2:
        return expand(RFS_QUANT_E2M1_2, true, quant, dst, codes, n, scale, zero);
    default:
        return 0;
    }
}

size_t rfs_quant_expand_vectors(const struct rfs_quant *quant, unsigned char *dst,
                                const unsigned char *codes, size_t n, float scale, float zero)
{
    return rfs_processor_has_avx2() ? by_code(quant, dst, codes, n, scale, zero) : 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

#define TABLE_STEP 32

/* Sets the numbers that the entries of a table stand for, before zero points. */
RFS_INLINE void entries_of(enum rfs_quant_code code, __m256 *a, __m256 *b)
{
    const __m256 counts = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 e2m1 = _mm256_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6);

    if (code == RFS_QUANT_E4M3) { /* subnormal, and with an exponent of 0 if it had no other use */
        *a = _mm256_mul_ps(counts, _mm256_set1_ps(0x1p-9F));
        *b = _mm256_mul_ps(_mm256_add_ps(counts, _mm256_set1_ps(8)), _mm256_set1_ps(0x1p-10F));
    } else if (code == RFS_QUANT_UINT4) {
        *a = _mm256_sub_ps(counts, _mm256_set1_ps(8));
        *b = counts;
    } else {
        *a = code == RFS_QUANT_E2M1_2 ? _mm256_add_ps(e2m1, e2m1) : e2m1;
        *b = _mm256_xor_ps(*a, _mm256_set1_ps(-0.0F));
        if (code == RFS_QUANT_E2M1_0)
            *b = _mm256_add_ps(*b, _mm256_setzero_ps()); /* -0 + 0 is 0 */
    }
}

/* Makes the tables of the lower and the upper bytes of products, each twice. */
RFS_INLINE void make_tables(enum rfs_quant_code code, float scale, float zero, __m256i *low,
                            __m256i *high)
{
    const __m256 scales = _mm256_set1_ps(scale);
    __m256 a, b;

    entries_of(code, &a, &b);
    if (code == RFS_QUANT_UINT4) {
        a = _mm256_sub_ps(a, _mm256_set1_ps(zero));
        b = _mm256_sub_ps(b, _mm256_set1_ps(zero));
    }
    const __m256i first = _mm256_srli_epi32(to_bf16(_mm256_mul_ps(a, scales)), 16);
    const __m256i last = _mm256_srli_epi32(to_bf16(_mm256_mul_ps(b, scales)), 16);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(first, last), 0xd8);
    const __m256i bytes = _mm256_packus_epi16(_mm256_and_si256(words, _mm256_set1_epi16(0xff)),
                                              _mm256_srli_epi16(words, 8));
    *low = _mm256_permute4x64_epi64(bytes, 0x88);
    *high = _mm256_permute4x64_epi64(bytes, 0xdd);
}

/* Gives the BFloat16 of all 16 codes of 4 bits with one scale. */
static void expand_all(const struct rfs_quant *quant, float scale, float zero,
                       unsigned char numbers[32])
{
    static const unsigned char codes[8] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};

    rfs_quant_expand_portably(quant, numbers, codes, 0, 16, scale, zero);
}

/* Makes the tables of any codes of 4 bits. */
RFS_INLINE void split_tables(const struct rfs_quant *quant, float scale, float zero, __m256i *low,
                             __m256i *high)
{
    unsigned char numbers[32];

    expand_all(quant, scale, zero, numbers);
    const __m256i words = _mm256_loadu_si256((const __m256i_u *)numbers);
    const __m256i bytes = _mm256_packus_epi16(_mm256_and_si256(words, _mm256_set1_epi16(0xff)),
                                              _mm256_srli_epi16(words, 8));
    *low = _mm256_permute4x64_epi64(bytes, 0x88);
    *high = _mm256_permute4x64_epi64(bytes, 0xdd);
}

/* Says whether products with a scale are those of a table. */
static bool fits_table(enum rfs_quant_code code, float scale)
{
    const float size = __builtin_fabsf(scale);

    /* Powers of 2 may be left out of products only while neither is subnormal nor infinite. */
    return code == RFS_QUANT_E4M3 ? size >= 0x1p-100F && size <= 0x1p100F
                                  : code == RFS_QUANT_PLAIN4 || __builtin_isfinite(scale);
}

/*
 * Returns 32 codes of 4 bits, each in a byte: 0 to 7, 16 to 23, 8 to 15, 24 to 31. So the halves of
 * words that are put together by unpacking follow each other.
 */
RFS_INLINE __m256i codes_of_4(const unsigned char *codes)
{
    const __m256i pairs = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i_u *)codes));
    const __m256i bytes =
        _mm256_and_si256(_mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4)), _mm256_set1_epi8(15));
    return _mm256_permute4x64_epi64(bytes, 0xd8);
}

RFS_INLINE void look_up_4(unsigned char *dst, const unsigned char *codes, __m256i low, __m256i high)
{
    const __m256i places = codes_of_4(codes);
    const __m256i lower = _mm256_shuffle_epi8(low, places);
    const __m256i upper = _mm256_shuffle_epi8(high, places);

    _mm256_storeu_si256((__m256i_u *)dst, _mm256_unpacklo_epi8(lower, upper));
    _mm256_storeu_si256((__m256i_u *)(dst + 32), _mm256_unpackhi_epi8(lower, upper));
}

/* False: a code is a NaN, and nothing is written. */
RFS_INLINE bool look_up_e4m3(unsigned char *dst, const unsigned char *codes, __m256i low,
                             __m256i high)
{
    const __m256i bytes =
        _mm256_permute4x64_epi64(_mm256_loadu_si256((const __m256i_u *)codes), 0xd8);
    const __m256i nan = _mm256_set1_epi8(0x7f);
    const __m256i magnitude = _mm256_and_si256(bytes, nan);

    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(magnitude, nan)) != 0)
        return false;
    const __m256i fraction = _mm256_and_si256(bytes, _mm256_set1_epi8(7));
    const __m256i places =
        _mm256_min_epu8(magnitude, _mm256_or_si256(fraction, _mm256_set1_epi8(8)));
    const __m256i exponent = _mm256_and_si256(bytes, _mm256_set1_epi8(0x78));
    const __m256i none = _mm256_setzero_si256();
    const __m256i lower = _mm256_shuffle_epi8(low, places);
    const __m256i upper =
        _mm256_xor_si256(_mm256_shuffle_epi8(high, places), _mm256_xor_si256(bytes, magnitude));
    _mm256_storeu_si256(
        (__m256i_u *)dst,
        _mm256_add_epi16(_mm256_unpacklo_epi8(lower, upper),
                         _mm256_slli_epi16(_mm256_unpacklo_epi8(exponent, none), 4)));
    _mm256_storeu_si256(
        (__m256i_u *)(dst + 32),
        _mm256_add_epi16(_mm256_unpackhi_epi8(lower, upper),
                         _mm256_slli_epi16(_mm256_unpackhi_epi8(exponent, none), 4)));
    return true;
}

/*
 * Expands whole steps of blocks, to the first codes that are left to others; returns their place.
 */
RFS_INLINE size_t by_tables(enum rfs_quant_code code, const struct rfs_quant *quant,
                            unsigned char *dst, const struct rfs_quant_row *row, size_t i)
{
    const bool halves = code >= RFS_QUANT_PLAIN4;
    size_t k = rfs_quant_block_at(quant, row, i);
    size_t end = rfs_quant_block_end(quant, row, k);

    for (; i < row->n; k++, end += (size_t)quant->block_cols) {
        const size_t stop = end < row->n ? end : row->n;
        const uint64_t at = row->at + i;
        const unsigned char *codes = row->codes + (halves ? at / 2 : at);
        __m256i low, high;
        if (stop - i < TABLE_STEP || (halves && at % 2 != 0) || !fits_table(code, row->scales[k]))
            return i;
        const float zero = row->zeros ? row->zeros[k] : 0;
        if (code == RFS_QUANT_PLAIN4)
            split_tables(quant, row->scales[k], zero, &low, &high);
        else
            make_tables(code, row->scales[k], zero, &low, &high);
        for (; i + TABLE_STEP <= stop; i += TABLE_STEP) {
            if (halves)
                look_up_4(dst + 2 * i, codes, low, high);
            else if (!look_up_e4m3(dst + 2 * i, codes, low, high))
                return i;
            codes += halves ? TABLE_STEP / 2 : TABLE_STEP;
        }
        if (i < stop)
            return i;
    }
    return i;
}

RFS_AVX2 static size_t table_of(const struct rfs_quant *quant, unsigned char *dst,
                                const struct rfs_quant_row *row, size_t from)
{
    switch ((enum rfs_quant_code)quant->code) {
    case RFS_QUANT_E4M3:
        return by_tables(RFS_QUANT_E4M3, quant, dst, row, from);
    case RFS_QUANT_PLAIN4:
        return by_tables(RFS_QUANT_PLAIN4, quant, dst, row, from);
    case RFS_QUANT_UINT4:
        return by_tables(RFS_QUANT_UINT4, quant, dst, row, from);
    case RFS_QUANT_E2M1:
        return by_tables(RFS_QUANT_E2M1, quant, dst, row, from);
    case RFS_QUANT_E2M1_0:
        return by_tables(RFS_QUANT_E2M1_0, quant, dst, row, from);
    case RFS_QUANT_E2M1_2:
        return by_tables(RFS_QUANT_E2M1_2, quant, dst, row, from);
    default:
        return from;
    }
}

size_t rfs_quant_expand_tables(const struct rfs_quant *quant, unsigned char *dst,
                               const struct rfs_quant_row *row, size_t from)
{
    const bool fits = quant->to == RFS_BFLOAT16 &&
                      (quant->round != RFS_FLOAT16 || quant->code == RFS_QUANT_PLAIN4);

    return fits && rfs_processor_has_avx2() ? table_of(quant, dst, row, from) : from;
}

#endif
