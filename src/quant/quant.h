/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantized weights as plain tensors. A weight is stored as codes, and beside them scales, one for
 * each block of codes, in any file of the checkpoint:
 *
 *     number [i, j] = round(round(code [i, j] - zero [i', j']) * scale [i', j'])
 *     i' = i / block_rows    j' = j / block_cols
 *
 * A number may be added instead: round(round(code * scale) + plus). Rows may say by their numbers
 * which row of scales they have, and not by their place. Or the codes are in blocks of a row with
 * the scales in them, block after block (expand.h).
 *
 * All numbers of a tensor together are a content, row by row, that is nowhere stored: reading a
 * range of it reads the codes of that range and the scales of its blocks. So whatever reads
 * contents can cut, transpose and cast quantized weights as any others.
 *
 * pair.c finds the weights of an index and their scales; scheme.h reads the config that says how
 * they belong together. Blocks need none: their dtype says all.
 *
 * Cost: 144 bytes for each weight. A read takes no memory but its destination and the stack.
 */
#pragma once

#include "base/error.h"
#include "base/intern.h"
#include "base/pool.h"
#include "formats/index.h"
#include "formats/walker.h"
#include "quant/codes.h"
#include "quant/scheme.h"
#include "store/files.h"

/* Scales of blocks at once: reads are divided accordingly. */
#define RFS_QUANT_SCALES 4096
/* A box of the grid of scales. */
struct rfs_quant_box {
    uint64_t row, rows, col, cols;
};
/* Scales that the next reads of a weight use again. All 0 to begin with. */
struct rfs_quant_scales {
    const struct rfs_quant *weight; /* the weight that they are of; NULL: there are none */
    struct rfs_quant_box box;
    struct rfs_quant_values *values; /* owned; too large for a stack */
};
/* Frees them: for RFS_CLEANUP. */
void rfs_quant_scales_end(struct rfs_quant_scales *scales);

/*
 * Reads bytes [OFFSET, OFFSET + SIZE) of the numbers of a weight whose codes begin at byte CODES of
 * the file that READING reads. 0 or -errno; on failure the content of BUF is undefined. The file of
 * the scales is compared after it was read; that of the codes, when READING ends.
 */
int rfs_quant_pread(struct rfs_reading *reading, const struct rfs_quant *quant, uint64_t codes,
                    struct rfs_quant_scales *scales, void *buf, size_t size, uint64_t offset);

/* Returns where the code of byte OFFSET of the numbers, its word or its block begins, in bytes. */
uint64_t rfs_quant_code_at(const struct rfs_quant *quant, uint64_t offset);
/* Gives the range of bytes that has the codes of SIZE bytes, not 0, of the numbers at OFFSET. */
void rfs_quant_codes(const struct rfs_quant *quant, uint64_t size, uint64_t offset, uint64_t *from,
                     uint64_t *to);
/* Returns how many bytes of codes make BYTES of numbers, which is at least 1. */
static inline uint64_t rfs_quant_code_bytes(const struct rfs_quant *quant, uint64_t bytes)
{
    const uint64_t n = bytes / rfs_dtype_bytes((enum rfs_dtype)quant->to);
    const uint64_t bits = n * rfs_quant_code_bits(quant);

    if (quant->block)
        return (n / quant->block_cols + (n % quant->block_cols > 0)) * rfs_quant_block_bytes(quant);
    return bits / 8 + (bits % 8 > 0);
}

struct rfs_quant_range {
    uint32_t file;
    uint64_t from, to; /* offsets in the file */
};
#define RFS_QUANT_SIDES 3
/*
 * Lists the ranges of scales, zero points and numbers of groups that a read of SIZE bytes, not 0,
 * at OFFSET needs beside its codes. Returns their number.
 */
unsigned rfs_quant_sides(const struct rfs_quant *quant, uint64_t size, uint64_t offset,
                         struct rfs_quant_range out[RFS_QUANT_SIDES]);

/* A checkpoint whose weights are to be found. All is borrowed. */
struct rfs_quant_source {
    const struct rfs_quant_scheme *scheme;
    struct rfs_files *files;
    uint32_t first_file; /* id of the file with number 0 of the index */
    struct rfs_tables *tables;
    struct rfs_intern *quants; /* keeps what is found, beyond the life of the index */
    struct rfs_pool *pool;     /* or NULL */
};
/*
 * Makes an index of INDEX that shows quantized weights as plain tensors, and none of what belongs
 * to them. 0 with *out owned by the caller, or -errno with *err filled: a weight without its
 * scales, or with some that do not fit it, a part of a weight that is not there, or a kind of
 * weight that is not read.
 */
int rfs_quant_pair(const struct rfs_quant_source *source, const struct rfs_index *index,
                   struct rfs_index **out, struct rfs_error *err);
/* Says whether a name is one that only parts of quantized weights have. */
bool rfs_quant_is_part(const char *name);
/*
 * Gives the weight that a part belongs to by its name: it has the first STEM characters of that,
 * and TAIL behind them. False: the name is not that of a part.
 */
bool rfs_quant_weight_of(const char *name, size_t *stem, const char **tail);
