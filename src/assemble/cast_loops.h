/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of rfs_cast_vectors, one for each pair of types, made of the load_ and store_ functions
 * of the file that includes this. RFS_CAST_TARGET is the attribute of their processor, and STEP the
 * elements of a turn.
 */
#pragma once

#define RFS_CAST_LOOP(to, to_bytes, from, from_bytes)                                              \
    RFS_CAST_TARGET static void from##_as_##to(unsigned char *dst, const unsigned char *src,       \
                                               size_t steps)                                       \
    {                                                                                              \
        for (; steps > 0; steps--) {                                                               \
            store_##to(dst, load_##from(src));                                                     \
            dst += (size_t)STEP * (to_bytes);                                                      \
            src += (size_t)STEP * (from_bytes);                                                    \
        }                                                                                          \
    }

RFS_CAST_LOOP(f16, 2, f32, 4)
RFS_CAST_LOOP(bf16, 2, f32, 4)
RFS_CAST_LOOP(f32, 4, f16, 2)
RFS_CAST_LOOP(bf16, 2, f16, 2)
RFS_CAST_LOOP(f32, 4, bf16, 2)
RFS_CAST_LOOP(f16, 2, bf16, 2)

typedef void loop_fn(unsigned char *, const unsigned char *, size_t);

static loop_fn *const loops[RFS_DTYPE_COUNT][RFS_DTYPE_COUNT] = {
    [RFS_FLOAT32] = {[RFS_FLOAT16] = f32_as_f16, [RFS_BFLOAT16] = f32_as_bf16},
    [RFS_FLOAT16] = {[RFS_FLOAT32] = f16_as_f32, [RFS_BFLOAT16] = f16_as_bf16},
    [RFS_BFLOAT16] = {[RFS_FLOAT32] = bf16_as_f32, [RFS_FLOAT16] = bf16_as_f16},
};
