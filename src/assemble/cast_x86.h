/* SPDX-License-Identifier: Apache-2.0 */
/* Does the part of rfs_cast in which AVX2 and F16C are faster. */
#pragma once

#include "formats/dtype.h"

/*
 * Casts as many of the first elements as it can and returns how many: 0 where the processor or
 * the types don't suit.
 */
size_t rfs_cast_x86(enum rfs_dtype to, void *dst, enum rfs_dtype from, const void *src,
                    size_t count);
