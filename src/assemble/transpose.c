/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In blocks of a cache line of columns: what is read of a row is used at once, and what is written
 * of a column follows what was written before. Two bytes an element, as most weights have, go eight
 * by eight through vector registers.
 */
#include "assemble/transpose.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define LINE 64 /* bytes */
/* More than this is in no cache when it is written. */
#define FAR ((size_t)4 << 20)

bool rfs_transpose_knows(size_t item)
{
    return item == 1 || item == 2 || item == 4 || item == 8;
}

/* The sizes are constants where this is inlined. */
static inline __attribute__((always_inline)) void move(unsigned char *dst, size_t dst_stride,
                                                       const unsigned char *src, size_t src_stride,
                                                       size_t item, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            memcpy(dst + c * dst_stride + r * item, src + r * src_stride + c * item, item);
}

static void move_any(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                     size_t src_stride, size_t item, size_t rows, size_t cols)
{
    if (item == 1)
        move(dst, dst_stride, src, src_stride, 1, rows, cols);
    else if (item == 2)
        move(dst, dst_stride, src, src_stride, 2, rows, cols);
    else if (item == 4)
        move(dst, dst_stride, src, src_stride, 4, rows, cols);
    else
        move(dst, dst_stride, src, src_stride, 8, rows, cols);
}

#ifdef __SSE2__
#define SIDE 8

/* Eight rows of eight elements of two bytes. */
static inline void move_eight(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                              size_t src_stride)
{
    __m128i a[SIDE];
    __m128i b[SIDE];

    for (size_t i = 0; i < SIDE; i++)
        a[i] = _mm_loadu_si128((const __m128i *)(const void *)(src + i * src_stride));
    for (size_t i = 0; i < SIDE; i += 2) {
        b[i] = _mm_unpacklo_epi16(a[i], a[i + 1]);
        b[i + 1] = _mm_unpackhi_epi16(a[i], a[i + 1]);
    }
    for (size_t i = 0; i < SIDE; i += 4) {
        a[i] = _mm_unpacklo_epi32(b[i], b[i + 2]);
        a[i + 1] = _mm_unpackhi_epi32(b[i], b[i + 2]);
        a[i + 2] = _mm_unpacklo_epi32(b[i + 1], b[i + 3]);
        a[i + 3] = _mm_unpackhi_epi32(b[i + 1], b[i + 3]);
    }
    for (size_t i = 0; i < SIDE / 2; i++) {
        _mm_storeu_si128((__m128i *)(void *)(dst + 2 * i * dst_stride),
                         _mm_unpacklo_epi64(a[i], a[i + 4]));
        _mm_storeu_si128((__m128i *)(void *)(dst + (2 * i + 1) * dst_stride),
                         _mm_unpackhi_epi64(a[i], a[i + 4]));
    }
}

/* The lines that eight columns will be written to. */
static void fetch_lines(unsigned char *dst, size_t dst_stride)
{
    for (size_t i = 0; i < SIDE; i++)
        __builtin_prefetch(dst + i * dst_stride, 1);
}

/*
 * Of a line of columns. Eight columns at a time, and of these a whole line of what is written: a
 * cache of eight ways holds eight lines, even if they are a power of two apart. FAR: what is
 * written is in no cache yet.
 */
static void move_twos(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                      size_t src_stride, size_t rows, size_t cols, bool far)
{
    const size_t whole_rows = rows / SIDE * SIDE;
    const size_t whole_cols = cols / SIDE * SIDE;

    for (size_t top = 0; top < whole_rows; top += LINE / 2) {
        const size_t end = whole_rows - top < LINE / 2 ? whole_rows : top + LINE / 2;
        for (size_t c = 0; c < whole_cols; c += SIDE) {
            if (far && c + SIDE < whole_cols)
                fetch_lines(dst + (c + SIDE) * dst_stride + top * 2, dst_stride);
            for (size_t r = top; r < end; r += SIDE)
                move_eight(dst + c * dst_stride + r * 2, dst_stride, src + r * src_stride + c * 2,
                           src_stride);
        }
    }
    if (whole_cols < cols)
        move(dst + whole_cols * dst_stride, dst_stride, src + whole_cols * 2, src_stride, 2,
             whole_rows, cols - whole_cols);
    if (whole_rows < rows)
        move(dst + whole_rows * 2, dst_stride, src + whole_rows * src_stride, src_stride, 2,
             rows - whole_rows, cols);
}
#endif

void rfs_transpose(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                   size_t src_stride, size_t item, size_t rows, size_t cols)
{
    const size_t most = LINE / item;

    for (size_t c = 0; c < cols; c += most) {
        const size_t n = cols - c < most ? cols - c : most;
        unsigned char *to = dst + c * dst_stride;
        const unsigned char *from = src + c * item;
#ifdef __SSE2__
        if (item == 2) {
            move_twos(to, dst_stride, from, src_stride, rows, n, cols * dst_stride > FAR);
            continue;
        }
#endif
        move_any(to, dst_stride, from, src_stride, item, rows, n);
    }
}
