/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GB/s of conversions in memory, one core, counted in bytes of the wider side: what every processor
 * does, and what this one does. Beside them, memcpy of as many bytes. 256 KiB of source at a time,
 * as they are converted; the median of 7 rounds. Then codes of quantized weights, which become
 * BFloat16 by a scale for each block of a row.
 */
#include "assemble/cast.h"
#include "quant/expand.h"

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

/* A kind of codes, and the codes of a row that share a scale. */
struct coded {
    const char *name;
    enum rfs_quant_code code;
    size_t block;
};

typedef void expand_fn(const struct rfs_quant *, unsigned char *, const struct rfs_quant_row *);

static void expand_portably(const struct rfs_quant *quant, unsigned char *dst,
                            const struct rfs_quant_row *row)
{
    for (size_t at = 0; at < row->n; at += quant->block_cols)
        rfs_quant_expand_portably(quant, dst + 2 * at, row->codes, at, quant->block_cols,
                                  row->scales[at / quant->block_cols], 0);
}

static double expand_speed(expand_fn *expand, const struct coded *coded, unsigned char *dst,
                           const unsigned char *src)
{
    static float scales[WINDOW];
    const struct rfs_quant quant = {.block_cols = coded->block,
                                    .code = (uint8_t)coded->code,
                                    .round = RFS_FLOAT32,
                                    .to = RFS_BFLOAT16};
    const struct rfs_quant_row row = {
        .codes = src, .n = WINDOW / 2, .first = coded->block, .scales = scales};
    double rates[ROUNDS];
    for (size_t i = 0; i < WINDOW; i++)
        scales[i] = 0.37F;
    for (int r = 0; r < ROUNDS; r++) {
        const double begin = now();
        size_t bytes = 0;
        do {
            expand(&quant, dst, &row);
            bytes += WINDOW;
        } while (now() - begin < 0.01);
        rates[r] = (double)bytes / (now() - begin) * 1e-9;
    }
    qsort(rates, ROUNDS, sizeof rates[0], by_value);
    return rates[ROUNDS / 2];
}

static void show_expanded(unsigned char *dst, unsigned char *src)
{
    static const struct coded all[] = {
        {"FP8 in 128", RFS_QUANT_E4M3, 128},    {"FP8 in 32", RFS_QUANT_E4M3, 32},
        {"INT8 in 4096", RFS_QUANT_INT8, 4096}, {"INT4 in 32", RFS_QUANT_UINT4, 32},
        {"FP4 in 32", RFS_QUANT_E2M1, 32},      {"FP4 in 16", RFS_QUANT_E2M1, 16}};
    for (size_t i = 0; i < WINDOW; i++) /* weights have no NaNs */
        src[i] = (src[i] & 0x7f) == 0x7f ? 0 : src[i];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        printf("%-14s %-9s", all[i].name, "BFloat16");
        printf(" %9.2f", expand_speed(expand_portably, &all[i], dst, src));
        printf(" %9.2f", expand_speed(rfs_quant_expand_row, &all[i], dst, src));
        printf(" %9.2f\n", speed(copy, RFS_BFLOAT16, dst, RFS_BFLOAT16, src));
    }
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
    show_expanded(dst, src);
    free(dst);
    free(src);
    return 0;
}
