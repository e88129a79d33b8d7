/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GB/s of conversions in memory, one core, counted in bytes of the wider side: what every processor
 * does, and what this one does. Beside them, memcpy of as many bytes. 256 KiB of source at a time,
 * as they are converted; the median of 7 rounds.
 */
#include "assemble/cast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WINDOW ((size_t)256 << 10)
#define ROUNDS 7

typedef void convert_fn(enum rfs_dtype, void *, enum rfs_dtype, const void *, size_t);

static void copy(enum rfs_dtype to, void *dst, enum rfs_dtype from, const void *src, size_t count)
{
    const size_t wide =
        rfs_dtype_bytes(to) > rfs_dtype_bytes(from) ? rfs_dtype_bytes(to) : rfs_dtype_bytes(from);
    memcpy(dst, src, count * wide);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double speed(convert_fn *convert, enum rfs_dtype to, void *dst, enum rfs_dtype from,
                    const void *src)
{
    const size_t from_bytes = rfs_dtype_bytes(from), to_bytes = rfs_dtype_bytes(to);
    const size_t count = WINDOW / from_bytes;
    const size_t wide = from_bytes > to_bytes ? from_bytes : to_bytes;
    double rates[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        const double begin = now();
        size_t bytes = 0;
        do {
            convert(to, dst, from, src, count);
            bytes += count * wide;
        } while (now() - begin < 0.01);
        rates[r] = (double)bytes / (now() - begin) * 1e-9;
    }
    qsort(rates, ROUNDS, sizeof rates[0], by_value);
    return rates[ROUNDS / 2];
}

int main(void)
{
    static const enum rfs_dtype sources[] = {RFS_FLOAT32, RFS_BFLOAT16, RFS_FLOAT16, RFS_FLOAT64,
                                             RFS_FLOAT8_E4M3FN};
    static const enum rfs_dtype targets[] = {RFS_BFLOAT16, RFS_FLOAT16, RFS_FLOAT32, RFS_FLOAT64};
    unsigned char *dst = malloc(8 * WINDOW), *src = malloc(8 * WINDOW);
    if (dst == NULL || src == NULL)
        return 1;
    memset(dst, 1, 8 * WINDOW);
    for (size_t i = 0; i < 8 * WINDOW; i++)
        src[i] = (unsigned char)(i * 7919 >> 5);
    printf("%-14s %-9s %9s %9s %9s\n", "from", "to", "portable", "here", "memcpy");
    for (size_t s = 0; s < sizeof sources / sizeof sources[0]; s++) {
        for (size_t t = 0; t < sizeof targets / sizeof targets[0]; t++) {
            if (sources[s] == targets[t])
                continue;
            printf("%-14s %-9s", rfs_dtype_name(sources[s]), rfs_dtype_name(targets[t]));
            printf(" %9.2f", speed(rfs_cast_portably, targets[t], dst, sources[s], src));
            printf(" %9.2f", speed(rfs_cast, targets[t], dst, sources[s], src));
            printf(" %9.2f\n", speed(copy, targets[t], dst, sources[s], src));
        }
    }
    free(dst);
    free(src);
    return 0;
}
