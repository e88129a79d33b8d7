/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a band. Of each matrix that it has a part of, tiles of some source rows are read,
 * the columns that the band needs, and written to the pieces as columns of lines. Tiles begin where
 * lines of the destination do, so that no two threads write to the same line. What is not
 * transposed is gathered piece by piece.
 *
 * A source row may hold a row of two matrices side by side, as of gate and up:
 *
 *     source row r      | gate[r] ......... | up[r] ........... |
 *     tile              rows r to r + n of both, read together; the columns of gate go to the
 *                       band, those of up to the other one
 */
#include "assemble/band.h"

#include "assemble/transpose.h"
#include "base/checked.h"
#include "base/vec.h"

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

/* Columns of the source, as rows of a slice. */
struct part {
    uint64_t dst; /* where the first element goes */
    uint64_t stride;
    size_t cols;
};

/* Work for one thread. */
struct tile {
    const struct rfs_block *block;
    uint64_t src; /* in the content: where the first element is */
    uint64_t src_stride;
    size_t rows;       /* of the source; 0: bytes up to END of one piece are gathered */
    struct part to[2]; /* side by side in a row: of the band, and of the other one, or no columns */
    uint64_t end;
};

struct filling {
    struct rfs_assembler *assembler;
    const struct rfs_band *bands[2]; /* the other one is NULL, or joined */
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
    const struct rfs_band *band = filling->bands[0];
    for (uint64_t i = 0; i < band->n; i++) {
        const uint64_t at = (band->first + i) * RFS_PIECE;
        const struct tile tile = {.block = block,
                                  .to = {{.dst = rfs_max_u64(begin, at)}},
                                  .end = rfs_min_u64(end, at + RFS_PIECE)};
        if (band->pieces[i] && tile.to[0].dst < tile.end && !RFS_PUSH(&filling->tiles, tile))
            return -ENOMEM;
    }
    return 0;
}

/* Bytes that are wanted of a row. */
static uint64_t row_bytes(const struct tile *tile)
{
    return (tile->to[0].cols + tile->to[1].cols) * tile->block->run;
}

/* Whether the rows of a tile are read together, with the gaps between them. */
static bool is_near(const struct tile *tile)
{
    const uint64_t stride = tile->src_stride;

    return stride - row_bytes(tile) <= stride / GAP_SHARE && stride <= ROW_ROOM(tile->block->run);
}

/* From one row of a tile to the next one in the scratch. */
static uint64_t scratch_stride(const struct tile *tile)
{
    return is_near(tile) ? tile->src_stride : row_bytes(tile) + APART;
}

/* As many rows as fit in a scratch, by whole lines of the output. */
static int add_rows(struct filling *filling, const struct tile *whole)
{
    const uint64_t item = whole->block->run;
    const uint64_t line = RFS_TRANSPOSE_LINE / item;
    const uint64_t most = RFS_SCRATCH / scratch_stride(whole) / line * line;
    uint64_t skip = whole->to[0].dst % RFS_TRANSPOSE_LINE / item;

    for (uint64_t r = 0; r < whole->rows; skip = 0) {
        struct tile tile = *whole;
        tile.rows = (size_t)rfs_min_u64(most - skip, whole->rows - r);
        tile.src += r * whole->src_stride;
        tile.to[0].dst += r * item;
        tile.to[1].dst += r * item;
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
    const struct part *to = &matrix->to[0];
    int rc = 0;

    if (to->cols * item < PART_LEAST && matrix->src_stride > PART_LEAST)
        return add_gathered(filling, matrix->block, to->dst,
                            to->dst + (to->cols - 1) * to->stride + matrix->rows * item);
    for (uint64_t c = 0; c < to->cols && rc == 0; c += most) {
        struct tile tile = *matrix;
        tile.src += c * item;
        tile.to[0].dst += c * to->stride;
        tile.to[0].cols = (size_t)rfs_min_u64(most, to->cols - c);
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
        const struct tile tile = {
            .block = block,
            .src = block->src + rfs_shape_src(&shape, k),
            .src_stride = rows->src_stride,
            .rows = (size_t)rows->count,
            .to = {{block->dst + rfs_shape_dst(&shape, k), cols->dst_stride, (size_t)n}}};
        rc = add_matrix(filling, &tile);
    }
    return rc;
}

/* From the first piece of the band that is made to the last one. */
static int add_band(struct filling *filling)
{
    const struct rfs_band *band = filling->bands[0];
    const struct rfs_slice *slice = band->slice;
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
        rc = add_block(filling, &slice->blocks[i], begin, end);
    return rc;
}

/* ---- two slices of the same rows ------------------------------------------------------------- */

/* Sets a tile of all of two matrices, if rows of the source hold a row of each. */
static bool join(const struct rfs_block *block, const struct rfs_block *beside, struct tile *tile)
{
    struct rfs_shape a, b;

    if (!rfs_band_transposes(block, &a) || !rfs_band_transposes(beside, &b) || a.n != 2 ||
        b.n != 2 || a.run != b.run || block->file != beside->file ||
        block->content.offset != beside->content.offset ||
        block->content.extents != beside->content.extents)
        return false;
    const struct rfs_loop *cols = &a.loop[0];
    const struct rfs_loop *rows = &a.loop[1];
    *tile = (struct tile){.block = block,
                          .src = block->src,
                          .src_stride = rows->src_stride,
                          .rows = (size_t)rows->count,
                          .to = {{block->dst, cols->dst_stride, (size_t)cols->count},
                                 {beside->dst, b.loop[0].dst_stride, (size_t)b.loop[0].count}}};
    return beside->src == block->src + cols->count * a.run && b.loop[1].count == rows->count &&
           b.loop[1].src_stride == rows->src_stride && row_bytes(tile) <= rows->src_stride &&
           scratch_stride(tile) <= ROW_ROOM(a.run);
}

bool rfs_band_joins(const struct rfs_slice *slice, const struct rfs_slice *beside)
{
    struct tile tile;
    bool joins = slice->n > 0 && slice->n == beside->n;

    for (size_t i = 0; i < slice->n && joins; i++)
        joins = join(&slice->blocks[i], &beside->blocks[i], &tile);
    return joins;
}

static int add_joined(struct filling *filling)
{
    const struct rfs_slice *slice = filling->bands[0]->slice;
    struct tile tile;
    int rc = 0;

    for (size_t i = 0; i < slice->n && rc == 0; i++)
        if (join(&slice->blocks[i], &filling->bands[1]->slice->blocks[i], &tile))
            rc = add_rows(filling, &tile);
    return rc;
}

/* ---- their bytes ----------------------------------------------------------------------------- */

/* Where byte AT of the slice goes; NULL: its piece is not made here. */
static unsigned char *place(const struct rfs_band *band, uint64_t at)
{
    const uint64_t number = at / RFS_PIECE;

    if (number < band->first || number >= band->first + band->n)
        return NULL;
    const struct rfs_piece *piece = band->pieces[number - band->first];
    return piece ? piece->data + at % RFS_PIECE : NULL;
}

/* Rows in the scratch that are written as columns. */
struct rows {
    const unsigned char *at;
    uint64_t stride, item, n;
};

static void put(const struct rfs_band *band, const struct part *part, const struct rows *rows)
{
    unsigned char *dst = place(band, part->dst);

    if (dst)
        rfs_transpose_far(dst, (size_t)part->stride, rows->at, (size_t)rows->stride,
                          (size_t)rows->item, (size_t)rows->n, part->cols);
}

/* The columns that lie in one piece go there together; of others, a part goes to the next one. */
static void put_part(const struct rfs_band *band, const struct part *part, const struct rows *rows)
{
    const uint64_t size = rows->n * rows->item;

    for (uint64_t c = 0, n; c < part->cols; c += n) {
        const uint64_t at = part->dst + c * part->stride;
        const uint64_t left = RFS_PIECE - at % RFS_PIECE;
        struct rows from = *rows;
        from.at += c * rows->item;
        if (size <= left) {
            n = rfs_min_u64((left - size) / part->stride + 1, part->cols - c);
            put(band, &(struct part){at, part->stride, (size_t)n}, &from);
            continue;
        }
        n = 1;
        from.n = left / rows->item;
        put(band, &(struct part){at, part->stride, 1}, &from);
        from.at += from.n * rows->stride;
        from.n = rows->n - from.n;
        put(band, &(struct part){at + left, part->stride, 1}, &from);
    }
}

static int read_tile(struct rfs_reading *reading, const struct tile *tile, unsigned char *scratch)
{
    const struct rfs_content *content = &tile->block->content;
    const uint64_t stride = scratch_stride(tile);
    const uint64_t part = row_bytes(tile);
    int rc = 0;

    if (is_near(tile))
        return rfs_content_pread(reading, content, scratch,
                                 (size_t)((tile->rows - 1) * stride + part), tile->src);
    for (uint64_t r = 0; r < tile->rows && rc == 0; r++)
        rc = rfs_content_pread(reading, content, scratch + r * stride, (size_t)part,
                               tile->src + r * tile->src_stride);
    return rc;
}

static int transpose_tile(const struct filling *filling, const struct tile *tile,
                          unsigned char *scratch)
{
    struct rows rows = {scratch, scratch_stride(tile), tile->block->run, tile->rows};
    struct rfs_reading reading;
    int rc = rfs_reading_take(filling->assembler->files, tile->block->file, &reading);

    if (rc < 0)
        return rc;
    reading.ahead = filling->ahead;
    rc = read_tile(&reading, tile, scratch);
    rfs_reading_leave(&reading);
    for (unsigned i = 0; i < 2 && rc == 0 && tile->to[i].cols > 0; i++) {
        put_part(filling->bands[i], &tile->to[i], &rows);
        rows.at += tile->to[i].cols * rows.item;
    }
    return rc;
}

static int gather_tile(const struct filling *filling, const struct tile *tile,
                       unsigned char *scratch)
{
    struct rfs_block block = *tile->block;
    const struct rfs_slice slice = {.bytes = tile->end, .n = 1, .blocks = &block};
    const uint64_t begin = tile->to[0].dst;

    return rfs_gather_with(filling->assembler->files, &slice, begin, tile->end, scratch,
                           place(filling->bands[0], begin), RFS_GATHER_UNPROVEN,
                           &(struct rfs_gather_held){.ahead = filling->ahead});
}

static int fill_tile(void *ctx, size_t i)
{
    const struct filling *filling = ctx;
    const struct tile *tile = &filling->tiles.data[i];
    struct scratch *scratch = rfs_scratch_take(filling->assembler);

    if (!scratch)
        return -ENOMEM;
    const int rc = (tile->rows > 0 ? transpose_tile : gather_tile)(filling, tile, scratch->bytes);
    rfs_scratch_give(filling->assembler, scratch);
    return rc;
}

int rfs_band_fill(struct rfs_assembler *assembler, const struct rfs_band *band,
                  const struct rfs_band *beside, bool ahead)
{
    struct filling filling = {.assembler = assembler, .bands = {band, beside}, .ahead = ahead};
    int rc = beside ? add_joined(&filling) : add_band(&filling);

    if (rc == 0)
        rc = rfs_pool_for(assembler->pool, filling.tiles.n, fill_tile, &filling);
    free(filling.tiles.data);
    return rc;
}
