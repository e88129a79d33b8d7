/* SPDX-License-Identifier: Apache-2.0 */
/* Which pieces make a band, and who makes them. */
#include "assemble/band.h"

#include "base/checked.h"

/* Below so many bands of budget, pieces are made one by one. */
#define ROOM_BANDS 4
#define LEAST_PIECES 16

uint64_t rfs_band_most(uint64_t budget)
{
    const uint64_t pieces = budget / RFS_PIECE / ROOM_BANDS;

    return pieces < LEAST_PIECES ? 0 : rfs_min_u64(pieces, RFS_BAND_PIECES);
}

/* The transposed block that byte AT of the slice is in, or lies between; NULL: none. */
static const struct rfs_block *find_block(const struct rfs_slice *slice, uint64_t at,
                                          struct rfs_shape *shape)
{
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst <= at; i++)
        if (at < slice->blocks[i].dst_end && rfs_band_transposes(&slice->blocks[i], shape))
            return &slice->blocks[i];
    return NULL;
}

/* Divides the pieces [first, last) into bands of equal length; sets that of piece NUMBER. */
static void divide(uint64_t first, uint64_t last, uint64_t most, uint64_t number,
                   struct rfs_band *band)
{
    const uint64_t bands = (last - first + most - 1) / most;
    const uint64_t each = (last - first + bands - 1) / bands;

    band->first = first + (number - first) / each * each;
    band->n = rfs_min_u64(each, last - band->first);
}

/*
 * Sets the band's place; false when the piece is in none. Small matrices share a band, unless each
 * is made of whole pieces, so a band seldom cuts a matrix between its columns. A piece in which two
 * large ones meet belongs to the first one.
 */
static bool find_band(const struct rfs_slice *slice, uint64_t most, uint64_t number,
                      struct rfs_band *band)
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
        const uint64_t k = rfs_shape_at_dst(&shape, rfs_max_u64(begin, block->dst) - block->dst);
        const uint64_t matrix = k - k % (shape.inner[shape.n - 2] * cols->count);
        const uint64_t from = block->dst + rfs_shape_dst(&shape, matrix);
        const bool meets = find_block(slice, from / RFS_PIECE * RFS_PIECE, &other);
        divide(meets ? rfs_pieces_to(from) : from / RFS_PIECE,
               rfs_min_u64(rfs_pieces_to(from + size), rfs_pieces_to(slice->bytes)), most, number,
               band);
    } else {
        divide(0, rfs_pieces_to(slice->bytes), most, number, band);
    }
    return band->n > 1 || slice->bytes <= RFS_PIECE;
}

uint64_t rfs_band_next(const struct rfs_slice *slice, uint64_t most, uint64_t number)
{
    struct rfs_band band;

    if (!find_band(slice, most, number, &band))
        return UINT64_MAX;
    const uint64_t next = band.first + band.n;
    return next * RFS_PIECE < slice->bytes ? next : UINT64_MAX;
}

/* Takes hold of the pieces of a band that nobody has or makes; whether there is any. */
static bool claim(struct rfs_assembler *assembler, struct rfs_band *band)
{
    const struct rfs_slice *slice = band->slice;
    bool any = false;

    for (uint64_t i = 0; i < band->n; i++) {
        const uint64_t begin = (band->first + i) * RFS_PIECE;
        const struct rfs_piece_key key = {{slice->id[0], slice->id[1]}, band->first + i};
        const size_t size = (size_t)rfs_min_u64(RFS_PIECE, slice->bytes - begin);
        struct rfs_piece **piece = &band->pieces[i];
        if (*piece)
            continue;
        if (rfs_cache_get(assembler->cache, &key, size, slice->n, RFS_WANT_ABSENT, piece) ==
            RFS_GOT_CLAIM)
            rfs_piece_note_files(*piece, slice, begin);
        else
            *piece = NULL;
        any = any || *piece;
    }
    return any;
}

/* All but OWN, which its owner publishes. */
static void publish(struct rfs_assembler *assembler, const struct rfs_band *band,
                    const struct rfs_piece *own, int rc)
{
    for (uint64_t i = 0; i < band->n; i++) {
        struct rfs_piece *piece = band->pieces[i];
        if (!piece || piece == own)
            continue;
        rfs_cache_publish(assembler->cache, piece, rc ? RFS_PUBLISH_NOTHING : 0);
        if (rc == 0)
            rfs_cache_unpin(assembler->cache, piece);
    }
}

/* Bands are made of sources that are fast, and not secret. */
static bool start_band(const struct rfs_assembler *assembler, const struct rfs_slice *slice,
                       uint64_t number, struct rfs_band *band)
{
    band->slice = slice;
    return !assembler->secret && !rfs_prefetch_is_slow(assembler->prefetch) &&
           find_band(slice, rfs_band_most(assembler->budget), number, band);
}

int rfs_band_make(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t number,
                  struct rfs_piece *piece, bool ahead)
{
    struct rfs_band band = {0};

    if (!start_band(assembler, slice, number, &band))
        return 1;
    band.pieces[number - band.first] = piece;
    rfs_cache_keep_warm(assembler->cache, band.n);
    claim(assembler, &band);
    const int rc = rfs_band_fill(assembler, &band, NULL, ahead);
    publish(assembler, &band, piece, rc);
    return rc;
}

static bool is_whole(const struct rfs_band *band)
{
    return band->first == 0 && band->n == rfs_pieces_to(band->slice->bytes);
}

bool rfs_assemble_joins(const struct rfs_slice *slice)
{
    struct rfs_shape shape;

    for (size_t i = 0; i < slice->n; i++)
        if (!rfs_band_transposes(&slice->blocks[i], &shape) || shape.n != 2 ||
            shape.loop[0].count * shape.run == shape.loop[1].src_stride)
            return false;
    return slice->n > 0;
}

bool rfs_band_ahead(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                    const struct rfs_slice *beside, uint64_t number, bool *made)
{
    struct rfs_band band = {0};
    struct rfs_band other = {0};

    if (!start_band(assembler, slice, number, &band))
        return false;
    *made = claim(assembler, &band);
    if (!*made)
        return true;
    const bool joined = is_whole(&band) && rfs_band_joins(slice, beside) &&
                        start_band(assembler, beside, 0, &other) && is_whole(&other) &&
                        claim(assembler, &other);
    rfs_cache_keep_warm(assembler->cache, joined ? band.n + other.n : band.n);
    const int rc = rfs_band_fill(assembler, &band, joined ? &other : NULL, true);
    publish(assembler, &band, NULL, rc);
    if (joined)
        publish(assembler, &other, NULL, rc);
    return true;
}
