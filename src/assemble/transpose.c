/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Works in squares of a cache line of columns: what is read of a row is used at once, and what is
 * written of a column follows what was written before. Two bytes an element, as most weights have,
 * go eight by eight through vector registers.
 *
 * A line that is written in parts is first read from memory, and a column's next part comes when no
 * cache has the line any more. So a far destination gets whole lines, made in a small buffer.
 */
#include "assemble/transpose.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define LINE RFS_TRANSPOSE_LINE
/*
 * Rows and columns of the squares that are transposed at once; lines of so many columns are made.
 */
#define SIDE 8

bool rfs_transpose_knows(size_t item)
{
    return item == 1 || item == 2 || item == 4 || item == 8 || item == 16;
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

#ifdef __SSE2__
static inline __m128i load(const unsigned char *src)
{
    return _mm_loadu_si128((const __m128i *)(const void *)src);
}

static inline void store(unsigned char *dst, size_t dst_stride, __m128i a, __m128i b)
{
    _mm_storeu_si128((__m128i *)(void *)dst, _mm_unpacklo_epi64(a, b));
    _mm_storeu_si128((__m128i *)(void *)(dst + dst_stride), _mm_unpackhi_epi64(a, b));
}

/*
 * Stores four columns of eight rows of two bytes, whose pairs of rows are given: AB has rows 0
 * and 1 in turn, and so on.
 */
static inline void store_four(unsigned char *dst, size_t stride, __m128i ab, __m128i cd, __m128i ef,
                              __m128i gh)
{
    store(dst, stride, _mm_unpacklo_epi32(ab, cd), _mm_unpacklo_epi32(ef, gh));
    store(dst + 2 * stride, stride, _mm_unpackhi_epi32(ab, cd), _mm_unpackhi_epi32(ef, gh));
}

/*
 * Transposes eight rows of eight elements of two bytes. No loops, nor arrays: compilers leave
 * those in memory.
 */
static inline void move_square(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                               size_t stride)
{
    const __m128i a = load(src), b = load(src + stride);
    const __m128i c = load(src + 2 * stride), d = load(src + 3 * stride);
    const __m128i e = load(src + 4 * stride), f = load(src + 5 * stride);
    const __m128i g = load(src + 6 * stride), h = load(src + 7 * stride);

    store_four(dst, dst_stride, _mm_unpacklo_epi16(a, b), _mm_unpacklo_epi16(c, d),
               _mm_unpacklo_epi16(e, f), _mm_unpacklo_epi16(g, h));
    store_four(dst + 4 * dst_stride, dst_stride, _mm_unpackhi_epi16(a, b), _mm_unpackhi_epi16(c, d),
               _mm_unpackhi_epi16(e, f), _mm_unpackhi_epi16(g, h));
}

static void move_twos(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                      size_t src_stride, size_t rows, size_t cols)
{
    const size_t whole_rows = rows / SIDE * SIDE;
    const size_t whole_cols = cols / SIDE * SIDE;

    for (size_t c = 0; c < whole_cols; c += SIDE)
        for (size_t r = 0; r < whole_rows; r += SIDE)
            move_square(dst + c * dst_stride + r * 2, dst_stride, src + r * src_stride + c * 2,
                        src_stride);
    if (whole_cols < cols)
        move(dst + whole_cols * dst_stride, dst_stride, src + whole_cols * 2, src_stride, 2,
             whole_rows, cols - whole_cols);
    if (whole_rows < rows)
        move(dst + whole_rows * 2, dst_stride, src + whole_rows * src_stride, src_stride, 2,
             rows - whole_rows, cols);
}
#else
static void move_twos(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                      size_t src_stride, size_t rows, size_t cols)
{
    move(dst, dst_stride, src, src_stride, 2, rows, cols);
}
#endif

static void move_any(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                     size_t src_stride, size_t item, size_t rows, size_t cols)
{
    if (item == 1)
        move(dst, dst_stride, src, src_stride, 1, rows, cols);
    else if (item == 2)
        move_twos(dst, dst_stride, src, src_stride, rows, cols);
    else if (item == 4)
        move(dst, dst_stride, src, src_stride, 4, rows, cols);
    else if (item == 8)
        move(dst, dst_stride, src, src_stride, 8, rows, cols);
    else
        move(dst, dst_stride, src, src_stride, 16, rows, cols);
}

void rfs_transpose(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                   size_t src_stride, size_t item, size_t rows, size_t cols)
{
    const size_t most = LINE / item;

    for (size_t c = 0; c < cols; c += most)
        move_any(dst + c * dst_stride, dst_stride, src + c * item, src_stride, item, rows,
                 cols - c < most ? cols - c : most);
}

/* ---- far destinations ------------------------------------------------------------------------ */

#ifdef __SSE2__
static inline void put_line(unsigned char *dst, const unsigned char *line)
{
    for (size_t i = 0; i < LINE; i += sizeof(__m128i))
        _mm_stream_si128((__m128i *)(void *)(dst + i),
                         _mm_load_si128((const __m128i *)(const void *)(line + i)));
}

static void end_lines(void)
{
    _mm_sfence();
}
#else
static inline void put_line(unsigned char *dst, const unsigned char *line)
{
    memcpy(dst, line, LINE);
}

static void end_lines(void)
{
}
#endif

/* Transposes as many rows as a line has elements; columns in groups of SIDE. */
static void move_lines(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                       size_t src_stride, size_t item, size_t cols)
{
    _Alignas(LINE) unsigned char lines[SIDE][LINE];

    for (size_t c = 0; c < cols; c += SIDE) {
        move_any(lines[0], LINE, src + c * item, src_stride, item, LINE / item, SIDE);
        for (size_t i = 0; i < SIDE; i++)
            put_line(dst + (c + i) * dst_stride, lines[i]);
    }
}

void rfs_transpose_far(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                       size_t src_stride, size_t item, size_t rows, size_t cols)
{
    const size_t step = LINE / item;
    const size_t before = (size_t)(-(uintptr_t)dst % LINE);
    const size_t lined = cols / SIDE * SIDE;
    size_t r = before / item;

    if (dst_stride % LINE != 0 || before % item != 0 || rows < r + step || lined == 0) {
        rfs_transpose(dst, dst_stride, src, src_stride, item, rows, cols);
        return;
    }
    if (r > 0)
        rfs_transpose(dst, dst_stride, src, src_stride, item, r, lined);
    for (; rows - r >= step; r += step)
        move_lines(dst + r * item, dst_stride, src + r * src_stride, src_stride, item, lined);
    end_lines();
    if (r < rows)
        rfs_transpose(dst + r * item, dst_stride, src + r * src_stride, src_stride, item, rows - r,
                      lined);
    if (lined < cols)
        rfs_transpose(dst + lined * dst_stride, dst_stride, src + lined * item, src_stride, item,
                      rows, cols - lined);
}
