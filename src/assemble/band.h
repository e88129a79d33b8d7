/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes pieces of transposed tensors. One piece of such a tensor takes a little of each source row,
 * so several pieces that follow each other, a band, are made together: then each source byte is
 * read about once. A band is made in tiles, some source rows each, by several threads.
 *
 * Memory: that of the pieces, which count in the budget, and a scratch for each thread.
 */
#pragma once

#include "assemble/cache.h"
#include "plan/slice.h"

struct rfs_assembler;

#define RFS_BAND_PIECES 64 /* most pieces of a band */

/*
 * Returns how many pieces a band may have, so that the cache holds several bands; 0: none is made.
 */
uint64_t rfs_band_most(uint64_t budget);
/*
 * Makes a claimed piece, and those of its band that are not there, which are published. 0 or -errno
 * for the piece, which the caller publishes; 1 when it is not made, as it is to be made by itself.
 */
int rfs_band_make(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t number,
                  struct rfs_cache_piece *piece, bool ahead);
/*
 * Returns the first piece behind the band, of at most MOST pieces, that a piece is in; UINT64_MAX:
 * there is none.
 */
uint64_t rfs_band_next(const struct rfs_slice *slice, uint64_t most, uint64_t number);

/*
 * Makes the band of a piece ahead, as far as it is not there and *PASSED is not set; and all of the
 * slice BESIDE, which may have no blocks, if the same source rows hold both. Returns false when the
 * piece is in no band; else *made is whether there was anything to make.
 */
bool rfs_band_ahead(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                    const struct rfs_slice *beside, uint64_t number, const atomic_bool *passed,
                    bool *made);

/*
 * Says whether rows of the source hold a row of each slice's matrices, BESIDE's behind that of
 * SLICE, so that they are read together if each slice is one band. Other files than band.c call it
 * for tests alone.
 */
bool rfs_band_joins(const struct rfs_slice *slice, const struct rfs_slice *beside);
