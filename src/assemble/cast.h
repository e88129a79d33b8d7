/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Casts floating-point elements from one type to another, as IEEE 754 has it: rounded once, to the
 * nearest, ties to even; too large becomes infinite; subnormals are kept, on both sides; signs are
 * kept, zero's too. The result does not depend on the processor, nor on the process's
 * floating-point environment.
 *
 * NaNs become those of PyTorch. As BFloat16 all of them are 0x7fc0. BFloat16's keep their bits as
 * Float32. Otherwise a NaN has the same sign, is quiet, and has as many of its payload's leading
 * bits as there is room for. Float8E4M3FN's has the payload of its 3 bits.
 */
#pragma once

#include "formats/dtype.h"

/*
 * Casts COUNT elements from src to dst; neither needs to be aligned; no overlap. FROM is a type
 * for which rfs_dtype_is_float, TO one for which rfs_dtype_is_float_target.
 */
void rfs_cast(enum rfs_dtype to, void *dst, enum rfs_dtype from, const void *src, size_t count);

/*
 * Casts Float64 to a type of 16 bits, rounded twice, by way of Float32, as PyTorch and MindSpore
 * do it.
 */
void rfs_cast_by_float32(enum rfs_dtype to, void *dst, const void *src, size_t count);

/*
 * Does what rfs_cast does, without instructions that only some processors have; for tests and
 * measurements.
 */
void rfs_cast_portably(enum rfs_dtype to, void *dst, enum rfs_dtype from, const void *src,
                       size_t count);
