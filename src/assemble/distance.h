/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says where to put bytes so that copying them is fast. The kernel copies with rep movsb, and so
 * does memcpy from some size on. On AMD processors with fast short rep movsb that instruction is
 * five times slower when the destination is 1 to 31 bytes past the source modulo 4096
 * (bench/micro_distance shows it): the usual case here, as the headers before a tensor are about as
 * long in the source as in the destination. A page of a file lies at a page of memory, so file
 * offsets serve as addresses.
 */
#pragma once

#include "base/std.h"

/* Moving the destination by this much leaves the slow distances. */
#define RFS_DISTANCE_STEP 64
/* Shorter copies are not worth a thought. */
#define RFS_DISTANCE_LEAST 4096

/* Says whether copying SIZE bytes from an address or file offset SRC to DST would be slow. */
static inline bool rfs_distance_is_slow(const void *dst, uint64_t src, uint64_t size)
{
    const uint64_t distance = ((uintptr_t)dst - src) % 4096;
    return size >= RFS_DISTANCE_LEAST && distance >= 1 && distance < 32;
}
