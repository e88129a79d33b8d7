/* SPDX-License-Identifier: Apache-2.0 */
/* Says what the processor can do. */
#pragma once

#include <stdbool.h>

/*
 * Returns whether the processor and the system have AVX2 and conversions of halves (F16C), as all
 * processors with AVX2 do. Asked once, as cpuid takes microseconds under a hypervisor. From any
 * thread.
 *
 * It asks the processor itself: __builtin_cpu_supports needs libgcc or a library like it, and with
 * compilers that have their own, such as zig's, says "no" of every processor.
 */
bool rfs_processor_has_avx2(void);
