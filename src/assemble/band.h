/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room: pieces of transposed tensors. One piece of such a tensor takes a little of each
 * source row, so several pieces that follow each other, a band, are made together: then each source
 * byte is read about once. A band is made in tiles, some source rows each, by several threads.
 *
 * Memory: that of the pieces, which count in the budget, and a scratch for each thread.
 */
#pragma once

#include "assemble/internal.h"
#include "assemble/shape.h"

#define RFS_BAND_PIECES 64 /* at most */

/*
 * How many pieces a band may have, so that the cache holds several bands; 0: no band is made.
 */
uint64_t rfs_band_most(uint64_t budget);
/*
 * Makes a claimed piece, and those of its band that are not there, which are published. 0 or -errno
 * of the piece, which the caller publishes; 1 when it is not made, as it is to be made by itself.
 */
int rfs_band_make(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t number,
                  struct rfs_piece *piece, bool ahead);
/*
 * The first piece behind the band, of at most MOST pieces, that a piece is in; UINT64_MAX: there is
 * none.
 */
uint64_t rfs_band_next(const struct rfs_slice *slice, uint64_t most, uint64_t number);

/*
 * Makes the band of a piece ahead, as far as it is not there; and all of the slice BESIDE, of any
 * or no blocks, if the same source rows hold both. False when the piece is in no band; else *made
 * is whether there was anything to make.
 */
bool rfs_band_ahead(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                    const struct rfs_slice *beside, uint64_t number, bool *made);

/* Pieces to be filled, from FIRST on; NULL: another thread has or makes it. */
struct rfs_band {
    const struct rfs_slice *slice;
    uint64_t first, n;
    struct rfs_piece *pieces[RFS_BAND_PIECES];
};
/*
 * Bytes of all pieces of a band, and of another one, which holds all of a slice BESIDE, or is NULL.
 * 0 or -errno; UNPROVEN as for rfs_gather.
 */
int rfs_band_fill(struct rfs_assembler *assembler, const struct rfs_band *band,
                  const struct rfs_band *beside, bool ahead);
/*
 * Whether rows of the source hold a row of each slice's matrices, BESIDE's behind that of SLICE, so
 * that they are read together if each slice is one band.
 */
bool rfs_band_joins(const struct rfs_slice *slice, const struct rfs_slice *beside);
/*
 * Whether a block moves matrices whose columns lie in a row in the source: the last two loops of
 * its SHAPE, which is set, are over the columns and the rows.
 */
bool rfs_band_transposes(const struct rfs_block *block, struct rfs_shape *shape);
