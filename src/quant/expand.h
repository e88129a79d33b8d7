/* SPDX-License-Identifier: Apache-2.0 */
/* Codes become numbers, a part of a row at a time. */
#pragma once

#include "quant/codes.h"

/* Codes of a row in blocks that have a scale each. */
struct rfs_quant_row {
    const unsigned char *codes;
    uint64_t at;  /* number of the first code, from CODES on */
    size_t n;     /* codes */
    size_t first; /* codes of the first block; the others have block_cols, the last maybe less */
    const float *scales; /* those of the blocks */
    const float *zeros;  /* zero points of the blocks; NULL: they have none */
};
/* Returns the number of the block that has code I of the row. */
static inline size_t rfs_quant_block_at(const struct rfs_quant *quant,
                                        const struct rfs_quant_row *row, size_t i)
{
    return i < row->first ? 0 : 1 + (i - row->first) / (size_t)quant->block_cols;
}
/* Returns the first code behind a block, which may be behind the row. */
static inline size_t rfs_quant_block_end(const struct rfs_quant *quant,
                                         const struct rfs_quant_row *row, size_t block)
{
    return row->first + block * (size_t)quant->block_cols;
}

/*
 * Expands the codes of a row to numbers at DST, which need no alignment. DST may overlap the codes
 * if no number would be written over a code behind its own. Needs the default floating-point
 * environment, see rfs_quant_begin_math.
 */
void rfs_quant_expand_row(const struct rfs_quant *quant, unsigned char *dst,
                          const struct rfs_quant_row *row);
/* Expands N codes, each in a byte, that have a scale and a zero point each. */
void rfs_quant_expand_columns(const struct rfs_quant *quant, unsigned char *dst,
                              const unsigned char *codes, size_t n, const float *scales,
                              const float *zeros);
/* The most numbers and bytes of a block with the scales in it. */
#define RFS_QUANT_BLOCK_MOST 256
#define RFS_QUANT_BLOCK_BYTES 210
/*
 * Expands a block with the scales in it, as gguf of llama.cpp does (quants.py, dequantize_blocks),
 * to its block_cols numbers at DST, which must not overlap it. SCALE and MIN are Float16, and s and
 * m of 32 or 16 numbers integers. A byte of codes has two numbers that are 16 or 32 apart.
 *
 *     Q4_0   SCALE, 16 bytes of codes              (code - 8) * SCALE
 *     Q8_0   SCALE, 32 codes                       code * SCALE
 *     Q4_K   SCALE, MIN, 12 bytes of s and m, 128 bytes of codes
 *     Q5_K   … 32 bytes of the fifth bits, 128 bytes of codes   code * (SCALE * s) - MIN * m
 *     Q6_K   128 bytes of codes, 64 of their upper 2 bits, 16 of s, SCALE
 *                                                  (code - 32) * (SCALE * s)
 */
void rfs_quant_expand_block(const struct rfs_quant *quant, unsigned char *dst,
                            const unsigned char *block);
/*
 * Expands N codes from code AT on of CODES, which have one scale, as rfs_quant_expand_row does. For
 * tests alone, outside of expand.c, as the next one.
 */
void rfs_quant_expand(const struct rfs_quant *quant, unsigned char *dst, const unsigned char *codes,
                      uint64_t at, size_t n, float scale, float zero);
/* Does what rfs_quant_expand does, without instructions that only some processors have. */
void rfs_quant_expand_portably(const struct rfs_quant *quant, unsigned char *dst,
                               const unsigned char *codes, uint64_t at, size_t n, float scale,
                               float zero);
/*
 * Vector instructions: AVX2 (expand_x86.c), or those of aarch64 (expand_neon.c). Other processors
 * have none.
 */
#if defined(__x86_64__) || defined(__aarch64__)
/*
 * Expands the first of N codes, as many as it can at once; returns how many. The first one begins a
 * byte, SCALE is finite, and products are not rounded to Float16.
 */
size_t rfs_quant_expand_vectors(const struct rfs_quant *quant, unsigned char *dst,
                                const unsigned char *codes, size_t n, float scale, float zero);
/*
 * Expands codes of a row from code FROM on, which is there, as many as it can at once, by tables of
 * products. Returns the first code that it has not expanded.
 */
size_t rfs_quant_expand_tables(const struct rfs_quant *quant, unsigned char *dst,
                               const struct rfs_quant_row *row, size_t from);
#else
static inline size_t rfs_quant_expand_vectors(const struct rfs_quant *quant, unsigned char *dst,
                                              const unsigned char *codes, size_t n, float scale,
                                              float zero)
{
    (void)quant, (void)dst, (void)codes, (void)n, (void)scale, (void)zero;
    return 0;
}
static inline size_t rfs_quant_expand_tables(const struct rfs_quant *quant, unsigned char *dst,
                                             const struct rfs_quant_row *row, size_t from)
{
    (void)quant, (void)dst, (void)row;
    return from;
}
#endif
/* Returns the number of a scale that is stored at AT. For tests alone, outside of expand.c. */
float rfs_quant_scale_value(const struct rfs_quant *quant, const unsigned char *at);
/* Gives the numbers of N scales that are stored from AT on. */
void rfs_quant_scale_values(const struct rfs_quant *quant, const unsigned char *at, size_t n,
                            float *values);
static inline uint32_t rfs_quant_scale_bytes(const struct rfs_quant *quant)
{
    return quant->scale == RFS_QUANT_S_F32                                       ? 4
           : quant->scale == RFS_QUANT_S_BF16 || quant->scale == RFS_QUANT_S_F16 ? 2
                                                                                 : 1;
}

/*
 * Begins computing as IEEE 754 has it, whatever rounding and flushing of subnormals the thread has.
 * Returns what rfs_quant_end_math restores.
 */
uint64_t rfs_quant_begin_math(void);
void rfs_quant_end_math(uint64_t before);
