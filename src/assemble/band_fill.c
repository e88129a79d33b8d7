/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a band. Of each matrix that it has a part of, tiles of some source rows are read,
 * the columns that the band needs, and written to the pieces as columns of lines. Tiles begin where
 * lines of the destination do, so that no two threads write to the same line. What is not
 * transposed is gathered piece by piece.
 */
#include "assemble/band.h"

#include "assemble/transpose.h"
#include "base/checked.h"
#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>

/* Longer rows of the output would lie in more than two pieces. */
#define ROW_MOST RFS_PIECE
/* Gaps between the wanted parts of source rows are read over where they are this part of a row. */
#define GAP_SHARE 8
/* Parts of rows of fewer bytes are not read one by one. */
#define PART_LEAST 16
/* A line further each, so that powers of two do not all go to the same ways of a cache. */
#define APART RFS_TRANSPOSE_LINE
/* Bytes of a scratch for each row, if it is to hold those of a line. */
#define ROW_ROOM(item) (RFS_SCRATCH / (RFS_TRANSPOSE_LINE / (item)))

/* Work for one thread. */
struct tile {
    const struct rfs_block *block;
    uint64_t dst; /* in the slice: where the first element goes */
    uint64_t end; /* 0; or no matrix is transposed, but [dst, end), which is in one piece, made */
    uint64_t src; /* in the content: where the first element is */
    uint64_t src_stride, dst_stride;
    size_t rows, cols; /* of the source */
};

struct filling {
    struct rfs_assembler *assembler;
    const struct rfs_band *band;
    bool ahead;
    RFS_VEC(struct tile) tiles;
};

bool rfs_band_transposes(const struct rfs_block *block, struct rfs_shape *shape)
{
    if (!block->strided)
        return false;
    rfs_shape_init(shape, block);
    if (shape->empty || shape->n < 2 || !rfs_transpose_knows((size_t)shape->run))
        return false;
    const struct rfs_loop *cols = &shape->loop[shape->n - 2];
    const struct rfs_loop *rows = &shape->loop[shape->n - 1];
    return cols->src_stride == shape->run && rows->dst_stride == shape->run &&
           cols->dst_stride <= ROW_MOST && cols->count * shape->run <= rows->src_stride &&
           block->dst % shape->run == 0;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* The bytes [begin, end) of the slice, of one block, in each piece. */
static int add_gathered(struct filling *filling, const struct rfs_block *block, uint64_t begin,
                        uint64_t end)
{
    const struct rfs_band *band = filling->band;
    for (uint64_t i = 0; i < band->n; i++) {
        const uint64_t at = (band->first + i) * RFS_PIECE;
        const struct tile tile = {
            .block = block, .dst = rfs_max_u64(begin, at), .end = rfs_min_u64(end, at + RFS_PIECE)};
        if (band->pieces[i] && tile.dst < tile.end && !RFS_PUSH(&filling->tiles, tile))
            return -ENOMEM;
    }
    return 0;
}

/* Whether the rows of a tile are read together, with the gaps between them. */
static bool is_near(const struct tile *tile)
{
    const uint64_t stride = tile->src_stride;
    const uint64_t gap = stride - tile->cols * tile->block->run;

    return gap <= stride / GAP_SHARE && stride <= ROW_ROOM(tile->block->run);
}

/* From one row of a tile to the next one in the scratch. */
static uint64_t scratch_stride(const struct tile *tile)
{
    return is_near(tile) ? tile->src_stride : tile->cols * tile->block->run + APART;
}

/* As many rows as fit in a scratch, by whole lines of the output. */
static int add_rows(struct filling *filling, const struct tile *whole)
{
    const uint64_t item = whole->block->run;
    const uint64_t line = RFS_TRANSPOSE_LINE / item;
    const uint64_t most = RFS_SCRATCH / scratch_stride(whole) / line * line;
    uint64_t skip = whole->dst % RFS_TRANSPOSE_LINE / item;

    for (uint64_t r = 0; r < whole->rows; skip = 0) {
        struct tile tile = *whole;
        tile.rows = (size_t)rfs_min_u64(most - skip, whole->rows - r);
        tile.src += r * whole->src_stride;
        tile.dst += r * item;
        r += tile.rows;
        if (!RFS_PUSH(&filling->tiles, tile))
            return -ENOMEM;
    }
    return 0;
}

/* A matrix, of as many columns as the band has a part of. */
static int add_matrix(struct filling *filling, const struct tile *matrix)
{
    const uint64_t item = matrix->block->run;
    const uint64_t most = (ROW_ROOM(item) - APART) / item;
    int rc = 0;

    if (matrix->cols * item < PART_LEAST && matrix->src_stride > PART_LEAST)
        return add_gathered(filling, matrix->block, matrix->dst,
                            matrix->dst + (matrix->cols - 1) * matrix->dst_stride +
                                matrix->rows * item);
    for (uint64_t c = 0; c < matrix->cols && rc == 0; c += most) {
        struct tile tile = *matrix;
        tile.cols = (size_t)rfs_min_u64(most, matrix->cols - c);
        tile.src += c * item;
        tile.dst += c * matrix->dst_stride;
        rc = add_rows(filling, &tile);
    }
    return rc;
}

/* Bytes [begin, end) of the slice, as far as the block has them; whole rows at either end. */
static int add_block(struct filling *filling, const struct rfs_block *block, uint64_t begin,
                     uint64_t end)
{
    struct rfs_shape shape;
    int rc = 0;

    begin = rfs_max_u64(begin, block->dst);
    end = rfs_min_u64(end, block->dst_end);
    if (begin >= end)
        return 0;
    if (!rfs_band_transposes(block, &shape))
        return add_gathered(filling, block, begin, end);
    const struct rfs_loop *cols = &shape.loop[shape.n - 2];
    const struct rfs_loop *rows = &shape.loop[shape.n - 1];
    const uint64_t from = rfs_shape_at_dst(&shape, begin - block->dst) / rows->count;
    const uint64_t last = rfs_shape_at_dst(&shape, end - 1 - block->dst) / rows->count;
    for (uint64_t c = from, n; c <= last && rc == 0; c += n) {
        n = rfs_min_u64(last + 1 - c, cols->count - c % cols->count);
        const uint64_t k = c * rows->count;
        rc = add_matrix(filling, &(struct tile){.block = block,
                                                .dst = block->dst + rfs_shape_dst(&shape, k),
                                                .src = block->src + rfs_shape_src(&shape, k),
                                                .src_stride = rows->src_stride,
                                                .dst_stride = cols->dst_stride,
                                                .rows = (size_t)rows->count,
                                                .cols = (size_t)n});
    }
    return rc;
}

/* ---- their bytes ----------------------------------------------------------------------------- */

/* Where byte AT of the slice goes; NULL: its piece is not made here. */
static unsigned char *place(const struct filling *filling, uint64_t at)
{
    const struct rfs_band *band = filling->band;
    const uint64_t number = at / RFS_PIECE;

    if (number < band->first || number >= band->first + band->n)
        return NULL;
    const struct rfs_piece *piece = band->pieces[number - band->first];
    return piece ? piece->data + at % RFS_PIECE : NULL;
}

static void put(const struct filling *filling, const struct tile *tile, uint64_t at,
                const unsigned char *src, uint64_t stride, uint64_t rows, uint64_t cols)
{
    unsigned char *dst = place(filling, at);

    if (dst)
        rfs_transpose_far(dst, (size_t)tile->dst_stride, src, (size_t)stride,
                          (size_t)tile->block->run, (size_t)rows, (size_t)cols);
}

/* The columns that lie in one piece go there together; of others, a part goes to the next one. */
static void put_tile(const struct filling *filling, const struct tile *tile,
                     const unsigned char *src, uint64_t stride)
{
    const uint64_t item = tile->block->run;
    const uint64_t size = tile->rows * item;

    for (uint64_t c = 0, n; c < tile->cols; c += n) {
        const uint64_t at = tile->dst + c * tile->dst_stride;
        const uint64_t left = RFS_PIECE - at % RFS_PIECE;
        const unsigned char *from = src + c * item;
        if (size <= left) {
            n = rfs_min_u64((left - size) / tile->dst_stride + 1, tile->cols - c);
            put(filling, tile, at, from, stride, tile->rows, n);
        } else {
            n = 1;
            put(filling, tile, at, from, stride, left / item, 1);
            put(filling, tile, at + left, from + left / item * stride, stride,
                tile->rows - left / item, 1);
        }
    }
}

static int read_tile(struct rfs_reading *reading, const struct tile *tile, unsigned char *scratch,
                     uint64_t *stride)
{
    const struct rfs_content *content = &tile->block->content;
    const uint64_t part = tile->cols * tile->block->run;
    int rc = 0;

    *stride = scratch_stride(tile);
    if (is_near(tile))
        return rfs_content_pread(reading, content, scratch,
                                 (size_t)((tile->rows - 1) * *stride + part), tile->src);
    for (uint64_t r = 0; r < tile->rows && rc == 0; r++)
        rc = rfs_content_pread(reading, content, scratch + r * *stride, (size_t)part,
                               tile->src + r * tile->src_stride);
    return rc;
}

static int transpose_tile(const struct filling *filling, const struct tile *tile,
                          unsigned char *scratch)
{
    struct rfs_reading reading;
    uint64_t stride;
    int rc = rfs_reading_take(filling->assembler->files, tile->block->file, &reading);

    if (rc < 0)
        return rc;
    reading.ahead = filling->ahead;
    rc = read_tile(&reading, tile, scratch, &stride);
    rfs_reading_leave(&reading);
    if (rc == 0)
        put_tile(filling, tile, scratch, stride);
    return rc;
}

static int gather_tile(const struct filling *filling, const struct tile *tile,
                       unsigned char *scratch)
{
    struct rfs_block block = *tile->block;
    const struct rfs_slice slice = {.bytes = tile->end, .n = 1, .blocks = &block};

    return rfs_gather_with(filling->assembler->files, &slice, tile->dst, tile->end, scratch,
                           place(filling, tile->dst), RFS_GATHER_UNPROVEN,
                           &(struct rfs_gather_held){.ahead = filling->ahead});
}

static int fill_tile(void *ctx, size_t i)
{
    const struct filling *filling = ctx;
    const struct tile *tile = &filling->tiles.data[i];
    struct scratch *scratch = rfs_scratch_take(filling->assembler);

    if (!scratch)
        return -ENOMEM;
    const int rc = (tile->end > 0 ? gather_tile : transpose_tile)(filling, tile, scratch->bytes);
    rfs_scratch_give(filling->assembler, scratch);
    return rc;
}

int rfs_band_fill(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                  const struct rfs_band *band, bool ahead)
{
    struct filling filling = {.assembler = assembler, .band = band, .ahead = ahead};
    uint64_t first = 0;
    uint64_t last = band->n - 1;
    int rc = 0;

    while (!band->pieces[first])
        first++;
    while (!band->pieces[last])
        last--;
    const uint64_t begin = (band->first + first) * RFS_PIECE;
    const uint64_t end = rfs_min_u64(slice->bytes, (band->first + last + 1) * RFS_PIECE);
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst < end && rc == 0; i++)
        rc = add_block(&filling, &slice->blocks[i], begin, end);
    if (rc == 0)
        rc = rfs_pool_for(assembler->pool, filling.tiles.n, fill_tile, &filling);
    free(filling.tiles.data);
    return rc;
}
