/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads contents that may be computed: zeros, or elements with a number added. The sum is that of
 * PyTorch: float16 and bfloat16 are added as float32, which is rounded to the nearest, ties to
 * even; float32 and float64 are added as they are. A NaN stays one.
 */
#pragma once

#include "catalog/catalog.h"

/*
 * Does what rfs_catalog_content_pread does, and then what the content says. Any range is fine. All
 * of an element is read that is wanted in part, if something is added to it.
 */
int rfs_computed_pread(struct rfs_reading *reading, const struct rfs_content *content,
                       struct rfs_quant_scales *scales, void *buf, size_t size, uint64_t offset);
