/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a matrix in memory, its rows as columns. */
#pragma once

#include "base/std.h"

#define RFS_TRANSPOSE_LINE 64 /* bytes of a line of a cache */

/* Says whether elements of so many bytes can be transposed: 1, 2, 4, 8 and 16. */
bool rfs_transpose_knows(size_t item);
/*
 * Transposes: element (R, C) of ROWS rows, at src + R * src_stride + C * item, goes to dst + C *
 * dst_stride + R * item. No overlap.
 */
void rfs_transpose(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                   size_t src_stride, size_t item, size_t rows, size_t cols);
/*
 * Transposes to a destination that is in no cache and is read later: its lines are written past the
 * caches where they can be written as a whole. Other threads see the bytes when this returns.
 */
void rfs_transpose_far(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                       size_t src_stride, size_t item, size_t rows, size_t cols);
