/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GB/s of strided copies in memory, one core: memcpy called for each run, and the kernels. Into 1
 * MiB from windows of 256 KiB, as pieces are assembled; the median of 7 rounds. W is the number of
 * shards: "join" spreads a dense source over every W-th place, "split" collects every W-th run.
 *
 * micro_kernels RUN - both with runs of RUN bytes and W = 4, once and without a clock, for
 * callgrind to count; prints the bytes copied.
 */
#include "assemble/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PIECE ((size_t)1 << 20)
#define WINDOW ((size_t)256 << 10)
#define ROUNDS 7

typedef void copy_fn(unsigned char *, size_t, const unsigned char *, size_t, size_t, size_t);

/* Not inlined and with an unknown length, as a plain loop over a plan would have it. */
__attribute__((noinline)) static void copy_plain(unsigned char *dst, size_t dst_stride,
                                                 const unsigned char *src, size_t src_stride,
                                                 size_t run, size_t count)
{
    for (size_t i = 0; i < count; i++)
        memcpy(dst + i * dst_stride, src + i * src_stride, run);
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

/* Fills the piece from W windows, each giving every W-th run; returns the bytes copied. */
static size_t join(copy_fn *copy, unsigned char *dst, const unsigned char *src, size_t run,
                   size_t ways)
{
    const size_t runs = PIECE / (run * ways);
    const size_t step = WINDOW / run;
    for (size_t w = 0; w < ways; w++) {
        for (size_t at = 0; at < runs; at += step) {
            const size_t n = runs - at < step ? runs - at : step;
            copy(dst + (at * ways + w) * run, run * ways, src, run, run, n);
        }
    }
    return runs * ways * run;
}

static size_t split(copy_fn *copy, unsigned char *dst, const unsigned char *src, size_t run,
                    size_t ways)
{
    const size_t runs = PIECE / run;
    const size_t step = WINDOW / (run * ways);
    for (size_t at = 0; at < runs; at += step) {
        const size_t n = runs - at < step ? runs - at : step;
        copy(dst + at * run, run, src, run * ways, run, n);
    }
    return runs * run;
}

typedef size_t pattern_fn(copy_fn *, unsigned char *, const unsigned char *, size_t, size_t);

static double speed(pattern_fn *pattern, copy_fn *copy, unsigned char *dst,
                    const unsigned char *src, size_t run, size_t ways)
{
    double rates[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        const double begin = now();
        size_t bytes = 0;
        do
            bytes += pattern(copy, dst, src, run, ways);
        while (now() - begin < 0.01);
        rates[r] = (double)bytes / (now() - begin) * 1e-9;
    }
    qsort(rates, ROUNDS, sizeof rates[0], by_value);
    return rates[ROUNDS / 2];
}

static int copy_once(size_t run, unsigned char *dst, const unsigned char *src)
{
    if (run == 0 || run > WINDOW / 4)
        return 2;
    const size_t joined = join(rfs_kernels_copy, dst, src, run, 4);
    printf("%zu\n", joined + split(rfs_kernels_copy, dst, src, run, 4));
    return 0;
}

int main(int argc, char **argv)
{
    static const size_t runs[] = {1,  2,  3,  4,   6,   8,   12,  16,  20,   24,
                                  32, 48, 64, 100, 128, 256, 384, 512, 1024, 4096};
    static const size_t ways[] = {2, 4, 8};
    unsigned char *dst = malloc(PIECE), *src = malloc(WINDOW);
    if (dst == NULL || src == NULL)
        return 1;
    memset(dst, 1, PIECE);
    memset(src, 2, WINDOW);
    if (argc == 2)
        return copy_once(strtoul(argv[1], NULL, 10), dst, src);
    printf("%-6s %2s %21s %21s\n%-6s %2s %10s %10s %10s %10s\n", "", "", "join", "split", "run",
           "W", "memcpy", "kernel", "memcpy", "kernel");
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            printf("%-6zu %2zu", runs[i], ways[w]);
            printf(" %10.2f", speed(join, copy_plain, dst, src, runs[i], ways[w]));
            printf(" %10.2f", speed(join, rfs_kernels_copy, dst, src, runs[i], ways[w]));
            printf(" %10.2f", speed(split, copy_plain, dst, src, runs[i], ways[w]));
            printf(" %10.2f\n", speed(split, rfs_kernels_copy, dst, src, runs[i], ways[w]));
        }
    }
    free(dst);
    free(src);
    return 0;
}
