/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range of numbers is read in parts: a part of one row, or some whole rows, so that the scales of
 * a part are a box of the grid. The codes of a part are read to the end of where its numbers go,
 * and expanded from there, from the first one on: no number takes less room than its code, so none
 * is written over a code that is still needed.
 *
 *     destination  | number 0 | number 1 | …                                     |
 *     before                                         | code 0 | code 1 | … code n |
 *
 * Of blocks with the scales in them, whole blocks are read so. Where columns have scales of their
 * own, a row, or a part of one, is read at a time, to memory that keeps the words for the next row:
 * it may share them.
 */
#include "quant/quant.h"

#include "base/checked.h"
#include "quant/expand.h"

/* Numbers at once: they stay in the L2 cache between being read and expanded. */
#define PART (UINT64_C(128) << 10)

/* A word of codes. */
#define WORD 4
#define WORD_BITS 32
/* Numbers of rows of the grid at once. */
#define INDICES 1024

/* Returns how many rows share a word of codes. */
static uint32_t rows_of_word(const struct rfs_quant *quant)
{
    return quant->order == RFS_QUANT_O_DOWN ? WORD_BITS / rfs_quant_code_bits(quant) : 1;
}

/* A box of a weight's elements: COLS from COL on in each of ROWS rows from ROW on. */
struct part {
    uint64_t row, rows, col, cols;
};

static uint64_t groups_of(uint64_t from, uint64_t n, uint64_t each)
{
    return (from + n - 1) / each - from / each + 1;
}

/* Returns the largest part from element AT on, of at most N elements and not more than PART. */
static struct part part_at(const struct rfs_quant *quant, uint64_t at, uint64_t n)
{
    const uint64_t most = rfs_min_u64(n, PART);
    const uint64_t row = at / quant->cols;
    const uint64_t col = at % quant->cols;
    struct part part = {row, 1, col, 0};

    if (col == 0 && most >= quant->cols && quant->grid_cols <= RFS_QUANT_SCALES &&
        quant->row_bytes * 8 == quant->cols * rfs_quant_code_bits(quant)) {
        const uint64_t grid_rows = RFS_QUANT_SCALES / quant->grid_cols;
        const uint64_t room = grid_rows > UINT64_MAX / quant->block_rows - 1
                                  ? UINT64_MAX
                                  : grid_rows * quant->block_rows - row % quant->block_rows;
        part.rows = rfs_min_u64(most / quant->cols, room);
        part.cols = quant->cols;
        return part;
    }
    part.cols = rfs_min_u64(most, quant->cols - col);
    if (groups_of(col, part.cols, quant->block_cols) > RFS_QUANT_SCALES)
        part.cols = RFS_QUANT_SCALES * quant->block_cols - col % quant->block_cols;
    return part;
}

uint64_t rfs_quant_code_at(const struct rfs_quant *quant, uint64_t offset)
{
    const uint64_t element = offset / rfs_dtype_bytes((enum rfs_dtype)quant->to);

    if (quant->block)
        return element / quant->block_cols * rfs_quant_block_bytes(quant);
    const uint64_t col = element % quant->cols;
    const uint32_t bits = rfs_quant_code_bits(quant);
    return element / quant->cols / rows_of_word(quant) * quant->row_bytes +
           (quant->order == RFS_QUANT_O_DOWN  ? col * WORD
            : quant->order == RFS_QUANT_O_AWQ ? col * bits / WORD_BITS * WORD
                                              : col * bits / 8);
}

void rfs_quant_codes(const struct rfs_quant *quant, uint64_t size, uint64_t offset, uint64_t *from,
                     uint64_t *to)
{
    const uint64_t row = quant->cols * rfs_dtype_bytes((enum rfs_dtype)quant->to);
    const uint64_t last = offset + size - 1;

    if (quant->order == RFS_QUANT_O_DOWN && offset / row != last / row) {
        offset -= offset % row;
        *from = rfs_quant_code_at(quant, offset);
        *to = rfs_quant_code_at(quant, last - last % row) + quant->row_bytes;
        return;
    }
    *from = rfs_quant_code_at(quant, offset);
    *to = rfs_quant_code_at(quant, last) + (quant->block   ? rfs_quant_block_bytes(quant)
                                            : quant->order ? WORD
                                                           : 1);
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* Returns the box of the grid that a part needs. */
static struct rfs_quant_box box_of(const struct rfs_quant *quant, const struct part *part)
{
    return (struct rfs_quant_box){
        part->row / quant->block_rows, groups_of(part->row, part->rows, quant->block_rows),
        part->col / quant->block_cols, groups_of(part->col, part->cols, quant->block_cols)};
}

/* Reads SIZE bytes of FILE. */
static int read_side(struct rfs_reading *codes, uint32_t file, void *buf, size_t size, uint64_t at)
{
    struct rfs_reading own;

    if (file == codes->id)
        return rfs_reading_pread(codes, buf, size, at);
    int rc = rfs_reading_take(codes->files, file, &own);
    if (rc < 0)
        return rc;
    own.ahead = codes->ahead;
    own.held = codes->held;
    own.n_held = codes->n_held;
    rc = rfs_reading_pread(&own, buf, size, at);
    const int ended = rfs_reading_end(&own);
    return rc < 0 ? rc : ended;
}

/* Rows of zero points that share a word, which each row of words has for all columns. */
static uint64_t zeros_of_word(const struct rfs_quant *quant)
{
    return quant->zero == RFS_QUANT_Z_UINT4 ? 8 : quant->zero == RFS_QUANT_Z_UINT8 ? 4 : 1;
}

static uint64_t zero_bytes(const struct rfs_quant *quant)
{
    return quant->zero == RFS_QUANT_Z_INT8 ? 1
           : rfs_quant_is_affine(quant)    ? rfs_quant_scale_bytes(quant)
                                           : WORD;
}

/* Returns where in their file the zero points of a row of the grid are. */
static uint64_t zeros_at(const struct rfs_quant *quant, uint64_t row, uint64_t col)
{
    const uint32_t bits = rfs_quant_code_bits(quant);

    if (rfs_quant_is_by_column(quant))
        return quant->zeros +
               (row * ((quant->cols * bits + WORD_BITS - 1) / WORD_BITS) + col * bits / WORD_BITS) *
                   WORD;
    return quant->zeros + (row / zeros_of_word(quant) * quant->grid_cols + col) * zero_bytes(quant);
}

static float zero_of(const struct rfs_quant *quant, const unsigned char *at, uint64_t row)
{
    if (rfs_quant_is_affine(quant))
        return rfs_quant_scale_value(quant, at);
    if (quant->zero == RFS_QUANT_Z_INT8)
        return (int8_t)*at;
    if (quant->zero == RFS_QUANT_Z_UINT8)
        return (float)(at[row % 4] - 128);
    return (float)((at[row % 8 / 2] >> (row % 2 ? 4 : 0) & 15) - 8);
}

struct rfs_quant_values {
    float scale[RFS_QUANT_SCALES];
    float zero[RFS_QUANT_SCALES];               /* when the weight has zero points */
    unsigned char stored[RFS_QUANT_SCALES * 4]; /* either, as the file has it */
    /* Where columns have scales of their own: */
    unsigned char codes[RFS_QUANT_SCALES];              /* of a row, each in a byte */
    unsigned char words[(RFS_QUANT_SCALES + 1) * WORD]; /* bytes [from, to) of FILE */
    uint32_t file;
    uint64_t from, to;
    int32_t indices[INDICES]; /* those of the rows of INDEXED from FIRST on */
    const struct rfs_quant *indexed;
    uint64_t first;
};

void rfs_quant_scales_end(struct rfs_quant_scales *scales)
{
    free(scales->values);
    scales->values = NULL;
}

/* A box of a grid has several rows only if they are whole, so its scales follow each other. */
static int load_scales(struct rfs_reading *codes, const struct rfs_quant *quant,
                       struct rfs_quant_scales *scales)
{
    const struct rfs_quant_box *box = &scales->box;
    struct rfs_quant_values *values = scales->values;
    const uint32_t item = rfs_quant_scale_bytes(quant);
    const uint64_t n = box->rows * box->cols;
    const int rc = read_side(codes, quant->scale_file, values->stored, (size_t)(n * item),
                             quant->scales + (box->row * quant->grid_cols + box->col) * item);

    if (rc == 0)
        rfs_quant_scale_values(quant, values->stored, (size_t)n, values->scale);
    return rc;
}

static int load_zeros(struct rfs_reading *codes, const struct rfs_quant *quant,
                      struct rfs_quant_scales *scales)
{
    const struct rfs_quant_box *box = &scales->box;
    struct rfs_quant_values *values = scales->values;
    const uint64_t item = zero_bytes(quant);
    const uint64_t share = zeros_of_word(quant);
    const uint64_t words = groups_of(box->row, box->rows, share);
    const int rc =
        read_side(codes, quant->zero_file, values->stored, (size_t)(words * box->cols * item),
                  zeros_at(quant, box->row, box->col));

    for (uint64_t r = 0; rc == 0 && r < box->rows; r++) {
        const uint64_t word = (box->row + r) / share - box->row / share;
        for (uint64_t c = 0; c < box->cols; c++)
            values->zero[r * box->cols + c] =
                zero_of(quant, values->stored + (word * box->cols + c) * item, box->row + r);
    }
    return rc;
}

/*
 * Takes N codes of 4 or 8 bits from words, one behind the other, or in AWQ's order; SKIP is the
 * number of the first one in the first word.
 */
static void take_codes(const struct rfs_quant *quant, const unsigned char *words, uint64_t skip,
                       size_t n, unsigned char *codes)
{
    static const unsigned char awq[] = {0, 4, 1, 5, 2, 6, 3, 7};

    if (rfs_quant_code_bits(quant) == 8) {
        memcpy(codes, words + skip, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t k = skip + i;
        const uint64_t at = quant->order == RFS_QUANT_O_AWQ ? k - k % 8 + awq[k % 8] : k;
        codes[i] = words[at / 2] >> (at % 2 ? 4 : 0) & 15;
    }
}

/* Loads the zero points of one row of the grid, of columns that have one each. */
static int load_column_zeros(struct rfs_reading *codes, const struct rfs_quant *quant,
                             struct rfs_quant_scales *scales)
{
    const struct rfs_quant_box *box = &scales->box;
    struct rfs_quant_values *values = scales->values;
    const uint32_t each = WORD_BITS / rfs_quant_code_bits(quant);
    const size_t n = (size_t)(groups_of(box->col, box->cols, each) * WORD);
    const int rc =
        read_side(codes, quant->zero_file, values->stored, n, zeros_at(quant, box->row, box->col));

    for (size_t i = 0; rc == 0 && quant->zero == RFS_QUANT_Z_WORDS_1 && i < n; i += WORD) {
        uint32_t word;
        memcpy(&word, values->stored + i, sizeof word);
        word += each == 8 ? 0x11111111U : 0x01010101U;
        memcpy(values->stored + i, &word, sizeof word);
    }
    if (rc == 0)
        take_codes(quant, values->stored, box->col % each, (size_t)box->cols, values->codes);
    for (uint64_t i = 0; rc == 0 && i < box->cols; i++)
        values->zero[i] = values->codes[i];
    return rc;
}

static bool has(const struct rfs_quant_box *box, const struct rfs_quant_box *want)
{
    return box->row <= want->row && box->col <= want->col &&
           want->row + want->rows <= box->row + box->rows &&
           want->col + want->cols <= box->col + box->cols;
}

static bool allocate(struct rfs_quant_scales *scales)
{
    if (scales->values)
        return true;
    scales->values = malloc(sizeof *scales->values);
    if (!scales->values)
        return false;
    scales->values->from = 0;
    scales->values->to = 0;
    scales->values->indexed = NULL;
    return true;
}

/* Makes SCALES have those of a box of the grid, and maybe others. */
static int get_scales(struct rfs_reading *codes, const struct rfs_quant *quant,
                      const struct rfs_quant_box *want, struct rfs_quant_scales *scales)
{
    if (scales->weight == quant && has(&scales->box, want))
        return 0;
    if (!allocate(scales))
        return -ENOMEM;
    scales->weight = NULL;
    scales->box = *want;
    int rc = load_scales(codes, quant, scales);
    if (rc == 0 && rfs_quant_is_by_column(quant))
        rc = load_column_zeros(codes, quant, scales);
    else if (rc == 0 && quant->zero != RFS_QUANT_Z_NONE)
        rc = load_zeros(codes, quant, scales);
    if (rc == 0)
        scales->weight = quant;
    return rc;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Expands a part whose first code is in the first byte of CODES. */
static void expand_part(const struct rfs_quant *quant, const struct part *part,
                        const struct rfs_quant_scales *scales, const unsigned char *codes,
                        unsigned char *dst)
{
    const uint32_t item = rfs_dtype_bytes((enum rfs_dtype)quant->to);
    const uint32_t bits = rfs_quant_code_bits(quant);
    const uint64_t grid_col = part->col / quant->block_cols - scales->box.col;
    const uint64_t before = rfs_quant_begin_math();
    struct rfs_quant_row row = {.codes = codes,
                                .n = (size_t)part->cols,
                                .first = (size_t)rfs_min_u64(
                                    part->cols, quant->block_cols - part->col % quant->block_cols)};

    for (uint64_t r = 0; r < part->rows; r++) {
        const uint64_t grid_row = (part->row + r) / quant->block_rows - scales->box.row;
        const uint64_t i = grid_row * scales->box.cols + grid_col;
        row.at = part->col * bits % 8 / bits + r * quant->row_bytes * 8 / bits;
        row.scales = scales->values->scale + i;
        row.zeros = quant->zero == RFS_QUANT_Z_NONE ? NULL : scales->values->zero + i;
        rfs_quant_expand_row(quant, dst + r * part->cols * item, &row);
    }
    rfs_quant_end_math(before);
}

/* Reads N whole numbers, from element AT on. */
static int read_elements(struct rfs_reading *reading, const struct rfs_quant *quant, uint64_t codes,
                         struct rfs_quant_scales *scales, unsigned char *dst, uint64_t at,
                         uint64_t n)
{
    const uint32_t item = rfs_dtype_bytes((enum rfs_dtype)quant->to);
    const uint32_t bits = rfs_quant_code_bits(quant);

    while (n > 0) {
        const struct part part = part_at(quant, at, n);
        const uint64_t elements = part.rows * part.cols;
        const uint64_t first = part.row * quant->row_bytes + part.col * bits / 8;
        const uint64_t last = part.col * bits % 8 + elements * bits;
        const size_t size = (size_t)(last / 8 + (last % 8 > 0));
        unsigned char *from = dst + elements * item - size;
        const struct rfs_quant_box box = box_of(quant, &part);
        const int rc = get_scales(reading, quant, &box, scales)
                           ?: rfs_reading_pread(reading, from, size, codes + first);
        if (rc < 0)
            return rc;
        expand_part(quant, &part, scales, from, dst);
        dst += elements * item;
        at += elements;
        n -= elements;
    }
    return 0;
}

/* ---- columns with scales of their own -------------------------------------------------------- */

/* Refuses a number of a row of the grid that the grid has not. */
static int refuse_index(struct rfs_reading *codes, const struct rfs_quant *quant, uint64_t row,
                        int32_t index)
{
    struct rfs_error err = {0};
    const int rc = rfs_fail(&err, -EIO, RFS_IN(rfs_files_path(codes->files, quant->index_file)),
                            "a copy that is not damaged; or without dequantize",
                            "g_idx says that column %" PRIu64 " has group %" PRId32 " of %" PRIu64,
                            row, index, quant->grid_rows);

    return rfs_files_refuse(codes->files, quant->index_file, rc, &err);
}

/* Gives the row of the grid that a row of codes has. */
static int find_grid_row(struct rfs_reading *codes, const struct rfs_quant *quant,
                         struct rfs_quant_scales *scales, uint64_t row, uint64_t *out)
{
    struct rfs_quant_values *values = scales->values;

    *out = row / quant->block_rows;
    if (quant->grid_rows == 0)
        return 0;
    if (values->indexed != quant || row < values->first || row - values->first >= INDICES) {
        const uint64_t n = rfs_min_u64(INDICES, quant->rows - row);
        values->indexed = NULL;
        const int rc =
            read_side(codes, quant->index_file, values->indices, (size_t)n * sizeof(int32_t),
                      quant->indices + row * sizeof(int32_t));
        if (rc < 0)
            return rc;
        values->indexed = quant;
        values->first = row;
    }
    const int32_t index = values->indices[row - values->first];
    if (index < 0 || (uint64_t)index >= quant->grid_rows)
        return refuse_index(codes, quant, row, index);
    *out = (uint64_t)index;
    return 0;
}

/* Gets N codes of a row from COL on, each in a byte. */
static int get_codes(struct rfs_reading *reading, const struct rfs_quant *quant, uint64_t codes,
                     struct rfs_quant_values *values, uint64_t row, uint64_t col, size_t n)
{
    const uint32_t bits = rfs_quant_code_bits(quant);
    const uint32_t each = WORD_BITS / bits;
    const uint64_t item = rfs_dtype_bytes((enum rfs_dtype)quant->to);
    const bool down = quant->order == RFS_QUANT_O_DOWN;
    const uint64_t first = down ? col : col / each;
    const uint64_t words = down ? n : groups_of(col, n, each);
    const uint64_t from = codes + rfs_quant_code_at(quant, row * quant->cols * item) + first * WORD;
    const uint64_t to = from + words * WORD;

    if (values->file != reading->id || from < values->from || to > values->to) {
        values->to = 0;
        const int rc = rfs_reading_pread(reading, values->words, (size_t)(to - from), from);
        if (rc < 0)
            return rc;
        values->file = reading->id;
        values->from = from;
        values->to = to;
    }
    const unsigned char *at = values->words + (from - values->from);
    if (!down) {
        take_codes(quant, at, col % each, n, values->codes);
        return 0;
    }
    const uint32_t shift = row % each * bits % WORD_BITS;
    const uint32_t mask = bits == 8 ? 255 : 15;
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, at + i * WORD, sizeof word);
        values->codes[i] = (unsigned char)(word >> shift & mask);
    }
    return 0;
}

/* Reads N whole numbers, from element AT on. */
static int read_columns(struct rfs_reading *reading, const struct rfs_quant *quant, uint64_t codes,
                        struct rfs_quant_scales *scales, unsigned char *dst, uint64_t at,
                        uint64_t n)
{
    const uint32_t item = rfs_dtype_bytes((enum rfs_dtype)quant->to);

    if (!allocate(scales))
        return -ENOMEM;
    for (uint64_t now; n > 0; dst += now * item, at += now, n -= now) {
        const uint64_t row = at / quant->cols;
        const uint64_t col = at % quant->cols;
        struct rfs_quant_box box = {0, 1, col, 0};
        now = rfs_min_u64(rfs_min_u64(n, RFS_QUANT_SCALES), quant->cols - col);
        box.cols = now;
        const int rc = find_grid_row(reading, quant, scales, row, &box.row)
                           ?: get_scales(reading, quant, &box, scales)
                           ?: get_codes(reading, quant, codes, scales->values, row, col,
                                        (size_t)now);
        if (rc < 0)
            return rc;
        const uint64_t skip = col - scales->box.col;
        const uint64_t before = rfs_quant_begin_math();
        rfs_quant_expand_columns(quant, dst, scales->values->codes, (size_t)now,
                                 scales->values->scale + skip, scales->values->zero + skip);
        rfs_quant_end_math(before);
    }
    return 0;
}

/* ---- blocks with the scales in them ---------------------------------------------------------- */

/* Reads the numbers of N whole blocks with the scales in them, from block AT on. */
static int read_blocks(struct rfs_reading *reading, const struct rfs_quant *quant, uint64_t codes,
                       unsigned char *dst, uint64_t at, uint64_t n)
{
    const size_t item = quant->block_cols * rfs_dtype_bytes((enum rfs_dtype)quant->to);
    const size_t bytes = rfs_quant_block_bytes(quant);
    unsigned char block[RFS_QUANT_BLOCK_BYTES];

    for (size_t now; n > 0; dst += now * item, at += now, n -= now) {
        now = (size_t)rfs_min_u64(n, PART / quant->block_cols);
        unsigned char *from = dst + now * (item - bytes);
        const int rc = rfs_reading_pread(reading, from, now * bytes, codes + at * bytes);
        if (rc < 0)
            return rc;
        const uint64_t before = rfs_quant_begin_math();
        for (size_t i = 0; i < now; i++) {
            memcpy(block, from + i * bytes, bytes);
            rfs_quant_expand_block(quant, dst + i * item, block);
        }
        rfs_quant_end_math(before);
    }
    return 0;
}

/* What can be read by itself: a number, or those of a block with the scales in it. */
static size_t unit_bytes(const struct rfs_quant *quant)
{
    const uint32_t item = rfs_dtype_bytes((enum rfs_dtype)quant->to);

    return quant->block ? item * (size_t)quant->block_cols : item;
}

static int read_units(struct rfs_reading *reading, const struct rfs_quant *quant, uint64_t codes,
                      struct rfs_quant_scales *scales, unsigned char *dst, uint64_t at, uint64_t n)
{
    return quant->block ? read_blocks(reading, quant, codes, dst, at, n)
           : rfs_quant_is_by_column(quant)
               ? read_columns(reading, quant, codes, scales, dst, at, n)
               : read_elements(reading, quant, codes, scales, dst, at, n);
}

/* Reads a part of one unit, up to its end or SIZE bytes; returns how many, or -errno. */
static int read_piece(struct rfs_reading *reading, const struct rfs_quant *quant, uint64_t codes,
                      struct rfs_quant_scales *scales, unsigned char *dst, size_t size,
                      uint64_t offset)
{
    const size_t item = unit_bytes(quant);
    const size_t skip = (size_t)(offset % item);
    const size_t take = (size_t)rfs_min_u64(size, item - skip);
    unsigned char unit[RFS_QUANT_BLOCK_MOST * sizeof(float)];
    const int rc = read_units(reading, quant, codes, scales, unit, offset / item, 1);

    if (rc == 0)
        memcpy(dst, unit + skip, take);
    return rc < 0 ? rc : (int)take;
}

int rfs_quant_pread(struct rfs_reading *reading, const struct rfs_quant *quant, uint64_t codes,
                    struct rfs_quant_scales *scales, void *buf, size_t size, uint64_t offset)
{
    const size_t item = unit_bytes(quant);
    unsigned char *dst = buf;

    while (size > 0) {
        const bool whole = offset % item == 0 && size >= item;
        const size_t bytes = whole ? size / item * item : 0;
        const int taken =
            whole ? read_units(reading, quant, codes, scales, dst, offset / item, bytes / item)
                  : read_piece(reading, quant, codes, scales, dst, size, offset);
        if (taken < 0)
            return taken;
        dst += whole ? bytes : (size_t)taken;
        offset += whole ? bytes : (size_t)taken;
        size -= whole ? bytes : (size_t)taken;
    }
    return 0;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

unsigned rfs_quant_sides(const struct rfs_quant *quant, uint64_t size, uint64_t offset,
                         struct rfs_quant_range out[RFS_QUANT_SIDES])
{
    if (quant->block)
        return 0;
    const uint32_t item = rfs_dtype_bytes((enum rfs_dtype)quant->to);
    const uint64_t first = offset / item;
    const uint64_t last = (offset + size - 1) / item;
    const uint64_t rows = last / quant->cols - first / quant->cols + 1;
    const struct part part = {first / quant->cols, rows, rows > 1 ? 0 : first % quant->cols,
                              rows > 1 ? quant->cols : last - first + 1};
    struct rfs_quant_box box = box_of(quant, &part);
    const uint32_t bytes = rfs_quant_scale_bytes(quant);

    if (quant->grid_rows > 0) { /* any of them */
        box.row = 0;
        box.rows = quant->grid_rows;
    }
    const uint64_t end = box.row + box.rows - 1;

    out[0] = (struct rfs_quant_range){
        quant->scale_file, quant->scales + (box.row * quant->grid_cols + box.col) * bytes,
        quant->scales + (end * quant->grid_cols + box.col + box.cols) * bytes};
    if (quant->zero == RFS_QUANT_Z_NONE)
        return 1;
    out[1] =
        (struct rfs_quant_range){quant->zero_file, zeros_at(quant, box.row, box.col),
                                 zeros_at(quant, end, box.col + box.cols - 1) + zero_bytes(quant)};
    if (quant->grid_rows == 0)
        return 2;
    out[2] =
        (struct rfs_quant_range){quant->index_file, quant->indices + part.row * sizeof(int32_t),
                                 quant->indices + (part.row + part.rows) * sizeof(int32_t)};
    return 3;
}
