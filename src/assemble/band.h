/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room: pieces of transposed tensors. One piece of such a tensor takes a little of each
 * source row, so several pieces that follow each other, a band, are made together: then each source
 * byte is read about once.
 *
 * Memory: RFS_BANDS bands at a time, of RFS_BAND_PIECES pieces and at most two rows of a piece's
 * size: 36 MiB. A band that would need more is made piece by piece.
 */
#ifndef RFS_ASSEMBLE_BAND_H
#define RFS_ASSEMBLE_BAND_H

#include "assemble/internal.h"

#define RFS_BAND_PIECES 16

/*
 * Makes a claimed piece, and those of its band that are not there, which are published. 0 or -errno
 * of the piece, which the caller publishes; 1 when it is not made, as it is to be made by itself.
 */
int rfs_band_make(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t number,
                  struct rfs_piece *piece, bool ahead);
/* The first piece of the band behind the one that a piece is in; UINT64_MAX: there is none. */
uint64_t rfs_band_next(const struct rfs_slice *slice, uint64_t number);
void rfs_band_free(struct rfs_assembler *assembler);

#endif
