/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/band.h"

#include "base/checked.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Below so many bands of budget, pieces are made one by one. */
#define ROOM_BANDS 4
/* Runs of more bytes are no elements: they are read as they are. */
#define ELEMENT_MOST 16
/* A band takes memory for whole rows: longer ones are made piece by piece. */
#define ROW_MOST RFS_PIECE

/* A range of the slice that is gathered at once. */
struct band {
    uint64_t first, last; /* pieces, exclusive */
    uint64_t begin, end;  /* bytes: those, and the rest of the rows at either end */
};

/* Rows of the output, of one block. */
static uint64_t row_bytes(const struct rfs_block *block)
{
    return block->loop[block->n_loops - 2].dst_stride;
}

/* Whether it is a matrix whose columns lie in a row in the source. */
static bool is_transposed(const struct rfs_block *block)
{
    return block->strided && block->n_loops >= 2 && block->run <= ELEMENT_MOST &&
           block->loop[block->n_loops - 2].src_stride == block->run && row_bytes(block) <= ROW_MOST;
}

/* The transposed block that byte AT of the slice is in, or lies between; NULL: none. */
static const struct rfs_block *find_block(const struct rfs_slice *slice, uint64_t at)
{
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst <= at; i++)
        if (at < slice->blocks[i].dst_end && is_transposed(&slice->blocks[i]))
            return &slice->blocks[i];
    return NULL;
}

static bool find_band(const struct rfs_slice *slice, uint64_t number, struct band *band)
{
    const uint64_t begin = number * RFS_PIECE;
    const uint64_t end = rfs_min_u64(slice->bytes, begin + RFS_PIECE);
    const uint64_t pieces = (slice->bytes + RFS_PIECE - 1) / RFS_PIECE;

    band->first = number / RFS_BAND_PIECES * RFS_BAND_PIECES;
    band->last = rfs_min_u64(pieces, band->first + RFS_BAND_PIECES);
    return band->last - band->first > 1 && (find_block(slice, begin) || find_block(slice, end - 1));
}

uint64_t rfs_band_next(const struct rfs_slice *slice, uint64_t number)
{
    struct band band;

    return find_band(slice, number, &band) && band.last * RFS_PIECE < slice->bytes ? band.last
                                                                                   : UINT64_MAX;
}

/* Sets the bytes of a band: its pieces, and the rest of the rows at either end. */
static void set_range(const struct rfs_slice *slice, struct band *band)
{
    band->begin = band->first * RFS_PIECE;
    band->end = rfs_min_u64(slice->bytes, band->last * RFS_PIECE);
    const struct rfs_block *before = find_block(slice, band->begin);
    const struct rfs_block *behind = find_block(slice, band->end - 1);
    if (before)
        band->begin -= (band->begin - before->dst) % row_bytes(before);
    if (behind) {
        const uint64_t rows = (band->end - 1 - behind->dst) / row_bytes(behind) + 1;
        band->end = rfs_max_u64(band->end,
                                rfs_min_u64(slice->bytes, behind->dst + rows * row_bytes(behind)));
    }
}

/* Whether one more band may be made now. */
static bool take_turn(struct rfs_assembler *assembler)
{
    pthread_mutex_lock(&assembler->lock);
    const bool mine = assembler->n_bands < RFS_BANDS;
    assembler->n_bands += mine;
    pthread_mutex_unlock(&assembler->lock);
    return mine;
}

static void give_turn(struct rfs_assembler *assembler)
{
    pthread_mutex_lock(&assembler->lock);
    assembler->n_bands--;
    pthread_mutex_unlock(&assembler->lock);
}

/* The largest band: its pieces, and the rest of a row at either end. */
#define ROOM (RFS_BAND_PIECES * RFS_PIECE + 2 * ROW_MOST)

/* Memory for a band; what earlier ones have used of it is not paged in again. */
static unsigned char *take_room(struct rfs_assembler *assembler)
{
    unsigned char *room = NULL;

    pthread_mutex_lock(&assembler->lock);
    for (unsigned i = 0; i < RFS_BANDS && !room; i++) {
        room = assembler->bands[i];
        assembler->bands[i] = NULL;
    }
    pthread_mutex_unlock(&assembler->lock);
    return room ? room : aligned_alloc(64, ROOM);
}

/* As many are taken as there are places. */
static void give_room(struct rfs_assembler *assembler, unsigned char *room)
{
    unsigned i = 0;

    pthread_mutex_lock(&assembler->lock);
    while (assembler->bands[i])
        i++;
    assembler->bands[i] = room;
    pthread_mutex_unlock(&assembler->lock);
}

void rfs_band_free(struct rfs_assembler *assembler)
{
    for (unsigned i = 0; i < RFS_BANDS; i++)
        free(assembler->bands[i]);
}

/* Takes hold of the other pieces of a band that nobody has or makes. */
static void claim(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                  const struct band *band, uint64_t number, struct rfs_piece **pieces)
{
    for (uint64_t k = band->first; k < band->last; k++) {
        const struct rfs_piece_key key = {{slice->id[0], slice->id[1]}, k};
        const size_t size = (size_t)rfs_min_u64(RFS_PIECE, slice->bytes - k * RFS_PIECE);
        struct rfs_piece **piece = &pieces[k - band->first];
        const int got = k == number ? RFS_GOT_NOTHING
                                    : rfs_cache_get(assembler->cache, &key, size, slice->n,
                                                    RFS_WANT_ABSENT, piece);
        if (got != RFS_GOT_CLAIM)
            *piece = NULL;
        else
            rfs_piece_note_files(*piece, slice, k * RFS_PIECE);
    }
}

/* PIECES are those of the band; where others have the first or the last of them, it is shorter. */
static int make(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                const struct band *whole, struct rfs_piece *const *pieces, bool ahead)
{
    struct band band = *whole;

    while (!pieces[band.first - whole->first])
        band.first++;
    while (!pieces[band.last - 1 - whole->first])
        band.last--;
    set_range(slice, &band);
    unsigned char *room = take_room(assembler);
    if (!room)
        return -ENOMEM;
    const int rc = rfs_fetch_exactly(assembler, slice, band.begin, band.end, room, ahead);
    for (uint64_t k = band.first; k < band.last && rc == 0; k++) {
        struct rfs_piece *piece = pieces[k - whole->first];
        if (piece)
            memcpy(piece->data, room + (k * RFS_PIECE - band.begin), piece->size);
    }
    give_room(assembler, room);
    return rc;
}

int rfs_band_make(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t number,
                  struct rfs_piece *piece, bool ahead)
{
    struct rfs_piece *pieces[RFS_BAND_PIECES] = {NULL};
    struct band band;

    if (assembler->secret || assembler->budget < ROOM_BANDS * RFS_BAND_PIECES * RFS_PIECE ||
        rfs_prefetch_is_slow(assembler->prefetch) || !find_band(slice, number, &band) ||
        !take_turn(assembler))
        return 1;
    claim(assembler, slice, &band, number, pieces);
    pieces[number - band.first] = piece;
    const int rc = make(assembler, slice, &band, pieces, ahead);
    give_turn(assembler);
    for (uint64_t k = 0; k < RFS_BAND_PIECES; k++) {
        if (!pieces[k] || pieces[k] == piece)
            continue;
        rfs_cache_publish(assembler->cache, pieces[k], rc ? RFS_PUBLISH_NOTHING : 0);
        if (rc == 0)
            rfs_cache_unpin(assembler->cache, pieces[k]);
    }
    return rc;
}
