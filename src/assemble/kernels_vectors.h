/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the part of rfs_kernels_copy in which byte shuffles are faster than single moves: those of
 * AVX2 (kernels_x86.c), or of aarch64 (kernels_neon.c). Other processors have none.
 */
#pragma once

#include "base/std.h"

/* The longest run that a shuffle is tried for. */
#define RFS_KERNELS_SHUFFLE_RUN 8

#if defined(__x86_64__) || defined(__aarch64__)
/*
 * Copies as many of the first runs as it can and returns how many: 0 where the processor, the run
 * or the strides don't suit. May read any source byte from the first run to the last. Bytes between
 * the runs of the destination are rewritten with their old values, so other threads must not write
 * there meanwhile; runs that are not done yet may hold any bytes.
 */
size_t rfs_kernels_shuffle(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                           size_t src_stride, size_t run, size_t count);
#else
static inline size_t rfs_kernels_shuffle(unsigned char *dst, size_t dst_stride,
                                         const unsigned char *src, size_t src_stride, size_t run,
                                         size_t count)
{
    (void)dst, (void)dst_stride, (void)src, (void)src_stride, (void)run, (void)count;
    return 0;
}
#endif

/* Returns how many steps fit when each touches REACH bytes of SPAN, STEP_BYTES further each. */
static inline size_t rfs_kernels_steps(size_t span, size_t reach, size_t step_bytes)
{
    return span < reach ? 0 : (span - reach) / step_bytes + 1;
}
