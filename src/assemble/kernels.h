/* SPDX-License-Identifier: Apache-2.0 */
/* Copies runs at strides, specialised on their length. bench/ measures the speed of each. */
#pragma once

#include "base/std.h"

/*
 * Copies COUNT runs of RUN bytes, the k-th from src + k * src_stride to dst + k * dst_stride. No
 * overlap. May read the source's bytes between the runs, and write back what the destination holds
 * between them: no other thread may write there meanwhile.
 */
void rfs_kernels_copy(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                      size_t src_stride, size_t run, size_t count);
