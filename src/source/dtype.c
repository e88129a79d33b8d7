/* SPDX-License-Identifier: Apache-2.0 */
/* The names and sizes are those of str(Tensor.dtype) and of what save_checkpoint writes for it. */
#include "source/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[RFS_DTYPE_COUNT] = {
    [RFS_BOOL] = {"Bool", 1},
    [RFS_INT4] = {"Int4", 1},
    [RFS_INT8] = {"Int8", 1},
    [RFS_UINT8] = {"UInt8", 1},
    [RFS_INT16] = {"Int16", 2},
    [RFS_UINT16] = {"UInt16", 2},
    [RFS_INT32] = {"Int32", 4},
    [RFS_UINT32] = {"UInt32", 4},
    [RFS_INT64] = {"Int64", 8},
    [RFS_UINT64] = {"UInt64", 8},
    [RFS_FLOAT16] = {"Float16", 2},
    [RFS_BFLOAT16] = {"BFloat16", 2},
    [RFS_FLOAT32] = {"Float32", 4},
    [RFS_FLOAT64] = {"Float64", 8},
    [RFS_COMPLEX64] = {"Complex64", 8},
    [RFS_COMPLEX128] = {"Complex128", 16},
    [RFS_FLOAT8_E4M3FN] = {"Float8E4M3FN", 1},
    [RFS_FLOAT8_E5M2] = {"Float8E5M2", 1},
    [RFS_HIFLOAT8] = {"HiFloat8", 1},
    [RFS_STR] = {"str", 4},
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
