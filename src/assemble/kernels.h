/* SPDX-License-Identifier: Apache-2.0 */
/* Strided copies specialised on the length of a run. bench/ measures the speed of each. */
#pragma once

#include "base/std.h"

/*
 * COUNT runs of RUN bytes, the k-th from src + k * src_stride to dst + k * dst_stride. No overlap.
 * May read the source's bytes between the runs, and write back what the destination holds between
 * them: no other thread may write there meanwhile.
 */
void rfs_copy_runs(unsigned char *dst, size_t dst_stride, const unsigned char *src,
                   size_t src_stride, size_t run, size_t count);
