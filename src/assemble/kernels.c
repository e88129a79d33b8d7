/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of a length known to the compiler is one or two moves; a copy of a length known at run
 * time is a call. So the loop exists once for each length that element sizes and small shards make
 * common, and lengths in between are made of two moves that overlap in the middle of the run.
 *
 * Runs of up to 4 bytes at short strides go through byte shuffles where the processor has them
 * (kernels_x86.c): there the single moves, not the memory, are the limit.
 */
#include "assemble/kernels.h"

#include "assemble/kernels_x86.h"

#define RFS_FIXED(n)                                                                               \
    static void copy_##n(unsigned char *restrict dst, size_t dst_stride,                           \
                         const unsigned char *restrict src, size_t src_stride, size_t count)       \
    {                                                                                              \
        for (; count >= 4; count -= 4) {                                                           \
            memcpy(dst, src, n);                                                                   \
            memcpy(dst + dst_stride, src + src_stride, n);                                         \
            memcpy(dst + 2 * dst_stride, src + 2 * src_stride, n);                                 \
            memcpy(dst + 3 * dst_stride, src + 3 * src_stride, n);                                 \
            dst += 4 * dst_stride;                                                                 \
            src += 4 * src_stride;                                                                 \
        }                                                                                          \
        for (; count > 0; count--) {                                                               \
            memcpy(dst, src, n);                                                                   \
            dst += dst_stride;                                                                     \
            src += src_stride;                                                                     \
        }                                                                                          \
    }

/* Runs of n to 2 n bytes: the first n and the last n, both loaded before either is stored. */
#define RFS_BETWEEN(n)                                                                             \
    static void copy_from_##n(unsigned char *restrict dst, size_t dst_stride,                      \
                              const unsigned char *restrict src, size_t src_stride, size_t run,    \
                              size_t count)                                                        \
    {                                                                                              \
        const size_t last = run - (n);                                                             \
        for (; count > 0; count--) {                                                               \
            unsigned char head[n], tail[n];                                                        \
            memcpy(head, src, n);                                                                  \
            memcpy(tail, src + last, n);                                                           \
            memcpy(dst, head, n);                                                                  \
            memcpy(dst + last, tail, n);                                                           \
            dst += dst_stride;                                                                     \
            src += src_stride;                                                                     \
        }                                                                                          \
    }

RFS_FIXED(1)
RFS_FIXED(2)
RFS_FIXED(3)
RFS_FIXED(4)
RFS_FIXED(6)
RFS_FIXED(8)
RFS_FIXED(12)
RFS_FIXED(16)
RFS_FIXED(24)
RFS_FIXED(32)
RFS_FIXED(48)
RFS_FIXED(64)
RFS_FIXED(96)
RFS_FIXED(128)
RFS_BETWEEN(4)
RFS_BETWEEN(8)
RFS_BETWEEN(16)
RFS_BETWEEN(32)

/* From 64 bytes on the call is lost in the copying. */
static void copy_long(unsigned char *restrict dst, size_t dst_stride,
                      const unsigned char *restrict src, size_t src_stride, size_t run,
                      size_t count)
{
    for (; count > 0; count--) {
        memcpy(dst, src, run);
        dst += dst_stride;
        src += src_stride;
    }
}

static void copy_between(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                         size_t src_stride, size_t run, size_t count)
{
    if (run < 8)
        copy_from_4(dst, dst_stride, src, src_stride, run, count);
    else if (run < 16)
        copy_from_8(dst, dst_stride, src, src_stride, run, count);
    else if (run < 32)
        copy_from_16(dst, dst_stride, src, src_stride, run, count);
    else if (run < 64)
        copy_from_32(dst, dst_stride, src, src_stride, run, count);
    else
        copy_long(dst, dst_stride, src, src_stride, run, count);
}

void rfs_copy_runs(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                   size_t src_stride, size_t run, size_t count)
{
    if (run == 0 || count == 0)
        return;
    if (dst_stride == run && src_stride == run) {
        memcpy(dst, src, run * count);
        return;
    }
    if (run <= RFS_SHUFFLE_RUN) {
        const size_t done = rfs_copy_shuffled(dst, dst_stride, src, src_stride, run, count);
        dst += done * dst_stride;
        src += done * src_stride;
        count -= done;
    }
#define RFS_CASE(n)                                                                                \
    case n:                                                                                        \
        copy_##n(dst, dst_stride, src, src_stride, count);                                         \
        break
    switch (run) {
        RFS_CASE(1);
        RFS_CASE(2);
        RFS_CASE(3);
        RFS_CASE(4);
        RFS_CASE(6);
        RFS_CASE(8);
        RFS_CASE(12);
        RFS_CASE(16);
        RFS_CASE(24);
        RFS_CASE(32);
        RFS_CASE(48);
        RFS_CASE(64);
        RFS_CASE(96);
        RFS_CASE(128);
    default:
        copy_between(dst, dst_stride, src, src_stride, run, count);
    }
#undef RFS_CASE
}
