/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of a length known to the compiler is one or two moves; a copy of a length known at run
 * time is a call. So the loop exists once for each length that element sizes and small shards make
 * common, and lengths in between are made of two moves that overlap in the middle of the run.
 *
 * Runs of up to 4 bytes at short strides go through byte shuffles where the processor has them
 * (kernels_vectors.h): there the single moves, not the memory, are the limit.
 */
#include "assemble/kernels.h"

#include "assemble/kernels_vectors.h"

/* Lengths that have a loop of their own. */
#define EACH_LENGTH(X)                                                                             \
    X(1) X(2) X(3) X(4) X(6) X(8) X(12) X(16) X(24) X(32) X(48) X(64) X(96) X(128)

#define FIXED(n)                                                                                   \
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

/*
 * Copies runs of n to 2 n bytes: the first n and the last n, both loaded before either is stored.
 */
#define BETWEEN(n)                                                                                 \
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

EACH_LENGTH(FIXED)
BETWEEN(4)
BETWEEN(8)
BETWEEN(16)
BETWEEN(32)

/* Copies runs from 64 bytes on, where the cost of the call is lost in the copying. */
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

void rfs_kernels_copy(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                      size_t src_stride, size_t run, size_t count)
{
    if (run == 0 || count == 0)
        return;
    if (dst_stride == run && src_stride == run) {
        memcpy(dst, src, run * count);
        return;
    }
    if (run <= RFS_KERNELS_SHUFFLE_RUN) {
        const size_t done = rfs_kernels_shuffle(dst, dst_stride, src, src_stride, run, count);
        dst += done * dst_stride;
        src += done * src_stride;
        count -= done;
    }
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        copy_##n(dst, dst_stride, src, src_stride, count);                                         \
        break;
    switch (run) {
        EACH_LENGTH(CASE)
    default:
        copy_between(dst, dst_stride, src, src_stride, run, count);
    }
}
