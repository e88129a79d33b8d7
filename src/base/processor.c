/* SPDX-License-Identifier: Apache-2.0 */
#include "base/processor.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

#define SAVED_YMM 6u /* the system keeps the registers of SSE and AVX of each thread */

__attribute__((target("xsave"))) static bool system_saves_registers(void)
{
    return (_xgetbv(0) & SAVED_YMM) == SAVED_YMM;
}

static bool ask(void)
{
    unsigned a, b, c = 0, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_F16C) ||
        !system_saves_registers())
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}

bool rfs_processor_has_avx2(void)
{
    static atomic_int answer; /* 0: not asked yet, 1: no, 2: yes */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);

    if (known == 0) {
        known = ask() ? 2 : 1;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known == 2;
}

#else

bool rfs_processor_has_avx2(void)
{
    return false;
}

#endif
