/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a quantized weight is stored: its codes, their scales and zero points, and what they become.
 */
#pragma once

#include "formats/dtype.h"

/* The kinds of codes. */
enum rfs_quant_code {
    RFS_QUANT_E4M3,   /* Float8E4M3FN */
    RFS_QUANT_INT8,   /* signed */
    RFS_QUANT_UINT8,  /* with 128 added */
    RFS_QUANT_PLAIN8, /* as it is */
    RFS_QUANT_PLAIN4, /* as it is; the low half of a byte is first, as in all of 4 bits */
    RFS_QUANT_UINT4,  /* with 8 added */
    RFS_QUANT_E2M1,   /* 4 bits: 0 0.5 1 1.5 2 3 4 6, and negative ones */
    RFS_QUANT_E2M1_0, /* the same, but that the negative zero is a positive one */
    RFS_QUANT_E2M1_2, /* twice E2M1 */
};

/* The kinds of scales. */
enum rfs_quant_scale {
    RFS_QUANT_S_F32,
    RFS_QUANT_S_BF16,
    RFS_QUANT_S_F16,
    RFS_QUANT_S_E8M0,     /* an exponent of 2, plus 127; 255 is a NaN */
    RFS_QUANT_S_EXPONENT, /* an exponent of 2, plus 127; 255 is infinite */
    RFS_QUANT_S_HALF,     /* an exponent of 2, plus 128 */
    RFS_QUANT_S_E4M3,     /* Float8E4M3FN, to be divided by the scale of the whole weight */
    RFS_QUANT_S_E4M3_BY,  /* Float8E4M3FN, to be multiplied by it */
};

/* The kinds of zero points. */
enum rfs_quant_zero {
    RFS_QUANT_Z_NONE,
    RFS_QUANT_Z_INT8,  /* one for each scale */
    RFS_QUANT_Z_UINT8, /* with 128 added; 4 rows share a word of 32 bits */
    RFS_QUANT_Z_UINT4, /* with 8 added; 8 rows share a word */
    /* Numbers of the scales' type that are added to products, which are rounded to it before. */
    RFS_QUANT_Z_PLUS,
    RFS_QUANT_Z_PLUS_WIDE, /* the same, but that products are not rounded before */
    RFS_QUANT_Z_WORDS,     /* in words along the columns, in the bits and the order of codes */
    RFS_QUANT_Z_WORDS_1,   /* the same, to which words with 1 in the place of each are added */
};

/* Where the codes of a row are. */
enum rfs_quant_order {
    RFS_QUANT_O_ROW,  /* one behind the other */
    RFS_QUANT_O_AWQ,  /* in words; of 4 bits, column K of 8 is code 0 4 1 5 2 6 3 7 [K] of a word */
    RFS_QUANT_O_DOWN, /* in a word for each column, which rows that follow each other share */
};

/* A quantized weight. Interned as these bytes, so padding is zero. */
struct rfs_quant {
    uint64_t rows, cols;
    uint64_t row_bytes; /* from one row of codes to the next */
    uint64_t block_rows, block_cols;
    uint64_t grid_cols; /* scales in a row of blocks */
    uint64_t scales;    /* where the scales begin in their file */
    uint64_t zeros;     /* where the zero points do */
    uint64_t indices;   /* where the rows' numbers of rows of the grid begin, each an Int32 */
    uint64_t grid_rows; /* if there are such numbers; else 0 */
    uint32_t scale_file, zero_file, index_file;
    float whole;   /* the scale of the whole weight, for S_E4M3 and S_E4M3_BY */
    uint8_t block; /* enum rfs_dtype of blocks that have the scales in them; 0: they are apart */
    uint8_t code;  /* enum rfs_quant_code */
    uint8_t scale; /* enum rfs_quant_scale */
    uint8_t zero;  /* enum rfs_quant_zero */
    uint8_t round; /* enum rfs_dtype to which products are rounded first; Float32: they are not */
    uint8_t to;    /* enum rfs_dtype of the numbers: BFloat16 or Float32 */
    uint8_t order; /* enum rfs_quant_order; O_AWQ and O_DOWN: there is a scale for each column */
    uint8_t pad[1];
};

/* Returns the bytes of a block of block_cols codes that has its scales in it; 0: there are none. */
static inline uint32_t rfs_quant_block_bytes(const struct rfs_quant *quant)
{
    return quant->block ? rfs_dtype_bytes((enum rfs_dtype)quant->block) : 0;
}

/* Returns the bits of a code that is in no such block. */
static inline uint32_t rfs_quant_code_bits(const struct rfs_quant *quant)
{
    return quant->code >= RFS_QUANT_PLAIN4 ? 4 : 8;
}

/* Says whether each column has a scale and a zero point of its own in a row of the grid. */
static inline bool rfs_quant_is_by_column(const struct rfs_quant *quant)
{
    return quant->zero >= RFS_QUANT_Z_WORDS;
}

/* Says whether a number is added to each product. */
static inline bool rfs_quant_is_affine(const struct rfs_quant *quant)
{
    return quant->zero == RFS_QUANT_Z_PLUS || quant->zero == RFS_QUANT_Z_PLUS_WIDE;
}
