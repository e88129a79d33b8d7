/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides tensors into bands, and assembles bands. A matrix is read in tiles: some source rows, and
 * only the columns that the band needs. They are written to the pieces as columns of lines. Tiles
 * begin where lines of the destination do, so that no two threads write to the same line. What is
 * not transposed is gathered piece by piece.
 *
 * A source row may hold a row of two matrices side by side, as of gate and up:
 *
 *     source row r      | gate[r] ......... | up[r] ........... |
 *     tile              rows r to r + n of both, read together; the columns of gate go to the
 *                       band, those of up to the other one
 */
#include "assemble/band.h"

#include "assemble/computed.h"
#include "assemble/internal.h"
#include "assemble/shape.h"
#include "assemble/transpose.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/vec.h"

/* Pieces are made one by one if the budget has room for fewer bands, or bands for fewer pieces. */
#define ROOM_BANDS 4
#define LEAST_PIECES 16
/* Longer rows of the output would lie in more than two pieces. */
#define ROW_MOST RFS_PIECE
/* Gaps in source rows are read over where they are at most this part of a row. */
#define GAP_SHARE 8
/* Parts of rows that have fewer bytes are not read one by one. */
#define PART_LEAST 16
/*
 * Rows in a scratch lie a line further apart: powers of two would go to the same ways of a cache.
 */
#define APART RFS_TRANSPOSE_LINE
/* Bytes of a scratch for each row, if it is to hold the rows of a line. */
#define ROW_ROOM(item) (RFS_SCRATCH / (RFS_TRANSPOSE_LINE / (item)))

/* Pieces to be filled, from FIRST on; NULL where another thread has or makes the piece. */
struct band {
    const struct rfs_slice *slice;
    uint64_t first, n;
    struct rfs_cache_piece *pieces[RFS_BAND_PIECES];
};
/* Columns of the source that become rows of a slice. */
struct columns {
    uint64_t dst; /* offset of the first element in the slice */
    uint64_t stride;
    size_t cols;
};

/* A thread's share of the work. */
struct tile {
    const struct rfs_block *block;
    uint64_t src; /* offset of the first element in the content */
    uint64_t src_stride;
    size_t rows;          /* source rows; 0: bytes up to END of one piece are gathered */
    struct columns to[2]; /* side by side in a row: for the band, and for the other one, if any */
    uint64_t end;
};

struct filling {
    struct rfs_assembler *assembler;
    const struct band *bands[2]; /* second one NULL, or joined */
    bool ahead;
    RFS_VEC(struct tile) tiles;
};

/*
 * Says whether a block moves matrices whose columns lie in a row in the source: then the last two
 * loops of its SHAPE, which is set, are over the columns and the rows.
 */
static bool transposes(const struct rfs_block *block, struct rfs_shape *shape)
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

/* ---- which pieces ---------------------------------------------------------------------------- */

uint64_t rfs_band_most(uint64_t budget)
{
    const uint64_t pieces = budget / RFS_PIECE / ROOM_BANDS;

    return pieces < LEAST_PIECES ? 0 : rfs_min_u64(pieces, RFS_BAND_PIECES);
}

/* Returns the transposed block that byte AT of the slice is in, or lies between; NULL: none. */
static const struct rfs_block *find_block(const struct rfs_slice *slice, uint64_t at,
                                          struct rfs_shape *shape)
{
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst <= at; i++)
        if (at < slice->blocks[i].dst_end && transposes(&slice->blocks[i], shape))
            return &slice->blocks[i];
    return NULL;
}

/* Divides the pieces [first, last) into bands of equal length; sets the one that has NUMBER. */
static void divide(uint64_t first, uint64_t last, uint64_t most, uint64_t number, struct band *band)
{
    const uint64_t bands = (last - first + most - 1) / most;
    const uint64_t each = (last - first + bands - 1) / bands;

    band->first = first + (number - first) / each * each;
    band->n = rfs_min_u64(each, last - band->first);
}

/*
 * Sets the pieces of the band that has NUMBER; returns false when there is no such band. Small
 * matrices share a band, unless each is made of whole pieces, so a band seldom cuts a matrix
 * between its columns. A piece in which two large ones meet belongs to the first one.
 */
static bool find_band(const struct rfs_slice *slice, uint64_t most, uint64_t number,
                      struct band *band)
{
    const uint64_t begin = number * RFS_PIECE;
    const uint64_t end = rfs_min_u64(slice->bytes, begin + RFS_PIECE);
    struct rfs_shape shape, other;
    const struct rfs_block *block = find_block(slice, begin, &shape);

    if (!block)
        block = find_block(slice, end - 1, &shape);
    if (!block || most == 0)
        return false;
    const struct rfs_loop *cols = &shape.loop[shape.n - 2];
    const uint64_t size = cols->count * cols->dst_stride;
    if (size % RFS_PIECE == 0 || size >= most * RFS_PIECE / 2) {
        const uint64_t k =
            rfs_shape_at(&shape, RFS_SHAPE_DST, rfs_max_u64(begin, block->dst) - block->dst);
        const uint64_t matrix = k - k % (shape.inner[shape.n - 2] * cols->count);
        const uint64_t from = block->dst + rfs_shape_dst(&shape, matrix);
        const bool meets = find_block(slice, from / RFS_PIECE * RFS_PIECE, &other);
        divide(meets ? rfs_assemble_pieces(from) : from / RFS_PIECE,
               rfs_min_u64(rfs_assemble_pieces(from + size), rfs_assemble_pieces(slice->bytes)),
               most, number, band);
    } else {
        divide(0, rfs_assemble_pieces(slice->bytes), most, number, band);
    }
    return band->n > 1 || slice->bytes <= RFS_PIECE;
}

uint64_t rfs_band_next(const struct rfs_slice *slice, uint64_t most, uint64_t number)
{
    struct band band;

    if (!find_band(slice, most, number, &band))
        return UINT64_MAX;
    const uint64_t next = band.first + band.n;
    return next * RFS_PIECE < slice->bytes ? next : UINT64_MAX;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Adds the bytes [begin, end) of the slice, from one block, as a tile for each piece. */
static int add_gathered(struct filling *filling, const struct rfs_block *block, uint64_t begin,
                        uint64_t end)
{
    const struct band *band = filling->bands[0];
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

/* Returns how many bytes of a row are wanted. */
static uint64_t row_bytes(const struct tile *tile)
{
    return (tile->to[0].cols + tile->to[1].cols) * tile->block->run;
}

/* Says whether the rows of a tile are read together, with the gaps between them. */
static bool is_near(const struct tile *tile)
{
    const uint64_t stride = tile->src_stride;

    return stride - row_bytes(tile) <= stride / GAP_SHARE && stride <= ROW_ROOM(tile->block->run);
}

/* Returns the distance from one row of a tile to the next one in the scratch. */
static uint64_t scratch_stride(const struct tile *tile)
{
    return is_near(tile) ? tile->src_stride : row_bytes(tile) + APART;
}

/* Adds tiles of as many rows as fit in a scratch, by whole lines of the output. */
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

/* Adds a matrix, as many of its columns as the band has a part of. */
static int add_matrix(struct filling *filling, const struct tile *matrix)
{
    const uint64_t item = matrix->block->run;
    const uint64_t most = (ROW_ROOM(item) - APART) / item;
    const struct columns *to = &matrix->to[0];
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

/*
 * Adds the bytes [begin, end) of the slice, as far as the block has them; whole rows at either end.
 */
static int add_block(struct filling *filling, const struct rfs_block *block, uint64_t begin,
                     uint64_t end)
{
    struct rfs_shape shape;
    int rc = 0;

    begin = rfs_max_u64(begin, block->dst);
    end = rfs_min_u64(end, block->dst_end);
    if (begin >= end)
        return 0;
    if (!transposes(block, &shape))
        return add_gathered(filling, block, begin, end);
    const struct rfs_loop *cols = &shape.loop[shape.n - 2];
    const struct rfs_loop *rows = &shape.loop[shape.n - 1];
    const uint64_t from = rfs_shape_at(&shape, RFS_SHAPE_DST, begin - block->dst) / rows->count;
    const uint64_t last = rfs_shape_at(&shape, RFS_SHAPE_DST, end - 1 - block->dst) / rows->count;
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

/* Adds the bytes from the first piece of the band that is made to the last one. */
static int add_band(struct filling *filling)
{
    const struct band *band = filling->bands[0];
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

/* Sets a tile with all of two matrices; returns whether rows of the source hold a row of each. */
static bool join(const struct rfs_block *block, const struct rfs_block *beside, struct tile *tile)
{
    struct rfs_shape a, b;

    if (!transposes(block, &a) || !transposes(beside, &b) || a.n != 2 || b.n != 2 ||
        a.run != b.run || block->file != beside->file ||
        block->content.offset != beside->content.offset ||
        block->content.extents != beside->content.extents ||
        block->content.quant != beside->content.quant ||
        block->content.plus != beside->content.plus ||
        block->content.zeros != beside->content.zeros)
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

/* ---- bytes of tiles -------------------------------------------------------------------------- */

/* Returns where byte AT of the slice goes; NULL: its piece is not made here. */
static unsigned char *dst_of(const struct band *band, uint64_t at)
{
    const uint64_t number = at / RFS_PIECE;

    if (number < band->first || number >= band->first + band->n)
        return NULL;
    const struct rfs_cache_piece *piece = band->pieces[number - band->first];
    return piece ? piece->data + at % RFS_PIECE : NULL;
}

/* Rows in the scratch that are written as columns. */
struct rows {
    const unsigned char *at;
    uint64_t stride, item, n;
};

static void put(const struct band *band, const struct columns *columns, const struct rows *rows)
{
    unsigned char *dst = dst_of(band, columns->dst);

    if (dst)
        rfs_transpose_far(dst, (size_t)columns->stride, rows->at, (size_t)rows->stride,
                          (size_t)rows->item, (size_t)rows->n, columns->cols);
}

/* Puts columns that lie in one piece there together, and divides others between two pieces. */
static void put_columns(const struct band *band, const struct columns *columns,
                        const struct rows *rows)
{
    const uint64_t size = rows->n * rows->item;

    for (uint64_t c = 0, n; c < columns->cols; c += n) {
        const uint64_t at = columns->dst + c * columns->stride;
        const uint64_t left = RFS_PIECE - at % RFS_PIECE;
        struct rows from = *rows;
        from.at += c * rows->item;
        if (size <= left) {
            n = rfs_min_u64((left - size) / columns->stride + 1, columns->cols - c);
            put(band, &(struct columns){at, columns->stride, (size_t)n}, &from);
            continue;
        }
        n = 1;
        from.n = left / rows->item;
        put(band, &(struct columns){at, columns->stride, 1}, &from);
        from.at += from.n * rows->stride;
        from.n = rows->n - from.n;
        put(band, &(struct columns){at + left, columns->stride, 1}, &from);
    }
}

static int read_tile(struct rfs_reading *reading, const struct tile *tile, unsigned char *scratch)
{
    const struct rfs_content *content = &tile->block->content;
    const uint64_t stride = scratch_stride(tile);
    const uint64_t wanted = row_bytes(tile);
    RFS_CLEANUP(rfs_quant_scales_end) struct rfs_quant_scales scales = {0};
    int rc = 0;

    if (is_near(tile))
        return rfs_computed_pread(reading, content, &scales, scratch,
                                  (size_t)((tile->rows - 1) * stride + wanted), tile->src);
    for (uint64_t r = 0; r < tile->rows && rc == 0; r++)
        rc = rfs_computed_pread(reading, content, &scales, scratch + r * stride, (size_t)wanted,
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
        put_columns(filling->bands[i], &tile->to[i], &rows);
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

    return rfs_gather(filling->assembler->files, &slice, begin, tile->end, scratch,
                      dst_of(filling->bands[0], begin), RFS_GATHER_UNPROVEN,
                      &(struct rfs_gather_held){.ahead = filling->ahead});
}

static int fill_tile(void *ctx, size_t i)
{
    const struct filling *filling = ctx;
    const struct tile *tile = &filling->tiles.data[i];
    struct rfs_scratch *scratch = rfs_scratch_take(filling->assembler);

    if (!scratch)
        return -ENOMEM;
    const int rc = (tile->rows > 0 ? transpose_tile : gather_tile)(filling, tile, scratch->bytes);
    rfs_scratch_give(filling->assembler, scratch);
    return rc;
}

/*
 * Assembles all pieces of a band, and of another one, which holds all of a slice BESIDE, or is
 * NULL. 0 or -errno; the sources are not checked for changes.
 */
static int fill_band(struct rfs_assembler *assembler, const struct band *band,
                     const struct band *beside, bool ahead)
{
    struct filling filling = {.assembler = assembler, .bands = {band, beside}, .ahead = ahead};
    int rc = beside ? add_joined(&filling) : add_band(&filling);

    if (rc == 0)
        rc = rfs_pool_for(assembler->pool, filling.tiles.n, fill_tile, &filling);
    free(filling.tiles.data);
    return rc;
}

/* ---- making them ----------------------------------------------------------------------------- */

/* Claims the pieces of a band that nobody has or makes; returns whether there is any. */
static bool claim(struct rfs_assembler *assembler, struct band *band, const atomic_bool *passed)
{
    bool any = false;

    for (uint64_t i = 0; i < band->n; i++) {
        struct rfs_cache_piece **piece = &band->pieces[i];
        if (*piece)
            continue;
        if (rfs_assemble_claim(assembler, band->slice, band->first + i, RFS_WANT_ABSENT, passed,
                               piece) != RFS_GOT_CLAIM)
            *piece = NULL;
        any = any || *piece;
    }
    return any;
}

/* Publishes all pieces but OWN, which its owner publishes. */
static void publish(struct rfs_assembler *assembler, const struct band *band,
                    const struct rfs_cache_piece *own, int rc)
{
    for (uint64_t i = 0; i < band->n; i++) {
        struct rfs_cache_piece *piece = band->pieces[i];
        if (!piece || piece == own)
            continue;
        rfs_cache_publish(assembler->cache, piece, rc ? RFS_PUBLISH_NOTHING : 0);
        if (rc == 0)
            rfs_cache_unpin(assembler->cache, piece);
    }
}

/* Finds the band of a piece. Bands are made of sources that are fast, and not secret. */
static bool start_band(const struct rfs_assembler *assembler, const struct rfs_slice *slice,
                       uint64_t number, struct band *band)
{
    band->slice = slice;
    return !rfs_files_are_encrypted(assembler->files) &&
           !rfs_prefetch_is_slow(assembler->prefetch) &&
           find_band(slice, rfs_band_most(assembler->budget), number, band);
}

int rfs_band_make(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t number,
                  struct rfs_cache_piece *piece, bool ahead)
{
    struct band band = {0};

    if (!start_band(assembler, slice, number, &band))
        return 1;
    band.pieces[number - band.first] = piece;
    rfs_cache_keep_warm(assembler->cache, band.n);
    claim(assembler, &band, NULL);
    const int rc = fill_band(assembler, &band, NULL, ahead);
    publish(assembler, &band, piece, rc);
    return rc;
}

static bool is_whole(const struct band *band)
{
    return band->first == 0 && band->n == rfs_assemble_pieces(band->slice->bytes);
}

bool rfs_assemble_joins(const struct rfs_slice *slice)
{
    struct rfs_shape shape;

    for (size_t i = 0; i < slice->n; i++)
        if (!transposes(&slice->blocks[i], &shape) || shape.n != 2 ||
            shape.loop[0].count * shape.run == shape.loop[1].src_stride)
            return false;
    return slice->n > 0;
}

bool rfs_band_ahead(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                    const struct rfs_slice *beside, uint64_t number, const atomic_bool *passed,
                    bool *made)
{
    struct band band = {0};
    struct band other = {0};

    if (!start_band(assembler, slice, number, &band))
        return false;
    *made = claim(assembler, &band, passed);
    if (!*made)
        return true;
    const bool joined = is_whole(&band) && rfs_band_joins(slice, beside) &&
                        start_band(assembler, beside, 0, &other) && is_whole(&other) &&
                        claim(assembler, &other, NULL);
    rfs_cache_keep_warm(assembler->cache, joined ? band.n + other.n : band.n);
    const int rc = fill_band(assembler, &band, joined ? &other : NULL, true);
    publish(assembler, &band, NULL, rc);
    if (joined)
        publish(assembler, &other, NULL, rc);
    return true;
}
