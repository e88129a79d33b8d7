/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, with the names that MindSpore writes in tensor_type and that safetensors has. */
#pragma once

#include "base/std.h"

enum rfs_dtype {
    RFS_BOOL,
    RFS_INT4, /* stored one element a byte, as MindSpore's qint4x2 is */
    RFS_INT8,
    RFS_UINT8,
    RFS_INT16,
    RFS_UINT16,
    RFS_INT32,
    RFS_UINT32,
    RFS_INT64,
    RFS_UINT64,
    RFS_FLOAT16,
    RFS_BFLOAT16,
    RFS_FLOAT32,
    RFS_FLOAT64,
    RFS_COMPLEX64,
    RFS_COMPLEX128,
    RFS_FLOAT8_E4M3FN, /* saved, but not loaded, by MindSpore 2.10; so are the complex ones */
    RFS_FLOAT8_E5M2,
    RFS_FLOAT8_E8M0, /* powers of two, as scales of quantized weights; MindSpore has no such type */
    RFS_HIFLOAT8,
    RFS_STR,             /* UTF-32LE code points */
    RFS_FLOAT8_E4M3FNUZ, /* these and the next are of torch and safetensors, not of MindSpore */
    RFS_FLOAT8_E5M2FNUZ,
    /* An element is the fewest numbers that fill bytes: 2 of 4 bits, as torch has it, 4 of 6. */
    RFS_FLOAT4_E2M1_X2,
    RFS_FLOAT6_E2M3_X4,
    RFS_FLOAT6_E3M2_X4,
    /* An element is a block of numbers with their scales in it, of llama.cpp; quant/expand.h. */
    RFS_Q4_0,
    RFS_Q8_0,
    RFS_Q4_K,
    RFS_Q5_K,
    RFS_Q6_K,
    RFS_DTYPE_COUNT
};

/* Returns "Float32" and so on; never NULL for a valid dtype. */
const char *rfs_dtype_name(enum rfs_dtype dtype);
/* Finds the dtype with that name. False for a name that is not known. */
bool rfs_dtype_parse(const char *name, size_t length, enum rfs_dtype *out);
/* Returns the bytes of an element in a .ckpt; 4 (a code point) for RFS_STR. */
uint32_t rfs_dtype_bytes(enum rfs_dtype dtype);
/*
 * Returns how many numbers an element has: 1, or more if they have 4 or 6 bits, or share scales.
 * The last dimension in the header of a safetensors or GGUF file is that of the tensor times this
 * number.
 */
uint32_t rfs_dtype_packed(enum rfs_dtype dtype);
/* Says whether an element is a block with scales. */
bool rfs_dtype_is_block(enum rfs_dtype dtype);
#define RFS_DTYPE_DEQUANTIZE "-o dequantize" /* remedy for blocks: makes numbers of them */

/*
 * Says whether elements can be cast to other floating-point types; those of E8M0, HiFloat8, FNUZ
 * and with several numbers cannot.
 */
bool rfs_dtype_is_float(enum rfs_dtype dtype);
/* Says whether elements can be cast to it: the floating-point types of 16 bits and more. */
bool rfs_dtype_is_float_target(enum rfs_dtype dtype);

/*
 * Returns "F32" and so on; NULL for a dtype that a safetensors file cannot hold. RFS_INT4 is "I8",
 * as MindSpore writes it, with "Int4" under the parameter's name in the metadata. (safetensors
 * 0.5.3 does not know "C64" yet.)
 */
const char *rfs_dtype_safetensors(enum rfs_dtype dtype);
/* Finds the dtype with that name in safetensors, never RFS_INT4. False: it is not known. */
bool rfs_dtype_parse_safetensors(const char *name, size_t length, enum rfs_dtype *out);
