/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names and sizes are those of str(Tensor.dtype) and of the values that save_checkpoint writes
 * for it; the other names are those of the safetensors library (tensor.rs). It has none for
 * complex128, strings, Huawei's HiFloat8 and the blocks of llama.cpp, whose names are its own.
 */
#include "formats/dtype.h"

static const struct {
    const char *name;
    uint32_t bytes;
    const char *safetensors;
} dtypes[RFS_DTYPE_COUNT] = {
    [RFS_BOOL] = {"Bool", 1, "BOOL"},
    [RFS_INT4] = {"Int4", 1, "I8"},
    [RFS_INT8] = {"Int8", 1, "I8"},
    [RFS_UINT8] = {"UInt8", 1, "U8"},
    [RFS_INT16] = {"Int16", 2, "I16"},
    [RFS_UINT16] = {"UInt16", 2, "U16"},
    [RFS_INT32] = {"Int32", 4, "I32"},
    [RFS_UINT32] = {"UInt32", 4, "U32"},
    [RFS_INT64] = {"Int64", 8, "I64"},
    [RFS_UINT64] = {"UInt64", 8, "U64"},
    [RFS_FLOAT16] = {"Float16", 2, "F16"},
    [RFS_BFLOAT16] = {"BFloat16", 2, "BF16"},
    [RFS_FLOAT32] = {"Float32", 4, "F32"},
    [RFS_FLOAT64] = {"Float64", 8, "F64"},
    [RFS_COMPLEX64] = {"Complex64", 8, "C64"},
    [RFS_COMPLEX128] = {"Complex128", 16, NULL},
    [RFS_FLOAT8_E4M3FN] = {"Float8E4M3FN", 1, "F8_E4M3"},
    [RFS_FLOAT8_E5M2] = {"Float8E5M2", 1, "F8_E5M2"},
    [RFS_FLOAT8_E8M0] = {"Float8E8M0FNU", 1, "F8_E8M0"},
    [RFS_HIFLOAT8] = {"HiFloat8", 1, NULL},
    [RFS_STR] = {"str", 4, NULL},
    [RFS_FLOAT8_E4M3FNUZ] = {"Float8E4M3FNUZ", 1, "F8_E4M3FNUZ"},
    [RFS_FLOAT8_E5M2FNUZ] = {"Float8E5M2FNUZ", 1, "F8_E5M2FNUZ"},
    [RFS_FLOAT4_E2M1_X2] = {"Float4E2M1FNx2", 1, "F4"},
    [RFS_FLOAT6_E2M3_X4] = {"Float6E2M3FNx4", 3, "F6_E2M3"},
    [RFS_FLOAT6_E3M2_X4] = {"Float6E3M2FNx4", 3, "F6_E3M2"},
    [RFS_Q4_0] = {"Q4_0", 18, NULL},
    [RFS_Q8_0] = {"Q8_0", 34, NULL},
    [RFS_Q4_K] = {"Q4_K", 144, NULL},
    [RFS_Q5_K] = {"Q5_K", 176, NULL},
    [RFS_Q6_K] = {"Q6_K", 210, NULL},
};

/* Numbers in an element, where they are several. */
static const uint16_t packed[RFS_DTYPE_COUNT] = {
    [RFS_FLOAT4_E2M1_X2] = 2, [RFS_FLOAT6_E2M3_X4] = 4, [RFS_FLOAT6_E3M2_X4] = 4, [RFS_Q4_0] = 32,
    [RFS_Q8_0] = 32,          [RFS_Q4_K] = 256,         [RFS_Q5_K] = 256,         [RFS_Q6_K] = 256,
};

const char *rfs_dtype_name(enum rfs_dtype dtype)
{
    return dtype < RFS_DTYPE_COUNT ? dtypes[dtype].name : NULL;
}

bool rfs_dtype_parse(const char *name, size_t length, enum rfs_dtype *out)
{
    for (unsigned i = 0; i < RFS_DTYPE_COUNT; i++) {
        if (strlen(dtypes[i].name) == length && memcmp(dtypes[i].name, name, length) == 0) {
            *out = (enum rfs_dtype)i;
            return true;
        }
    }
    return false;
}

uint32_t rfs_dtype_bytes(enum rfs_dtype dtype)
{
    return dtype < RFS_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

uint32_t rfs_dtype_packed(enum rfs_dtype dtype)
{
    return dtype < RFS_DTYPE_COUNT && packed[dtype] > 0 ? packed[dtype] : 1;
}

bool rfs_dtype_is_block(enum rfs_dtype dtype)
{
    return rfs_dtype_packed(dtype) >= 32;
}

const char *rfs_dtype_safetensors(enum rfs_dtype dtype)
{
    return dtype < RFS_DTYPE_COUNT ? dtypes[dtype].safetensors : NULL;
}

bool rfs_dtype_parse_safetensors(const char *name, size_t length, enum rfs_dtype *out)
{
    for (unsigned i = 0; i < RFS_DTYPE_COUNT; i++) {
        const char *have = dtypes[i].safetensors;
        if (i == RFS_INT4 || !have || strlen(have) != length || memcmp(have, name, length) != 0)
            continue;
        *out = (enum rfs_dtype)i;
        return true;
    }
    return false;
}

bool rfs_dtype_is_float_target(enum rfs_dtype dtype)
{
    return dtype == RFS_FLOAT16 || dtype == RFS_BFLOAT16 || dtype == RFS_FLOAT32 ||
           dtype == RFS_FLOAT64;
}

bool rfs_dtype_is_float(enum rfs_dtype dtype)
{
    return rfs_dtype_is_float_target(dtype) || dtype == RFS_FLOAT8_E4M3FN ||
           dtype == RFS_FLOAT8_E5M2;
}
