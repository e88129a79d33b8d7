/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes of a checkpoint that has no file of metadata. Each file names its tensors and the piece of
 * each that it holds. All pieces together are the checkpoint.
 *
 * The files are those that were registered before, from 0 on; file 0 stands for the metadata. Cost:
 * 40 bytes a piece and 8 for each of its axes while it is built, and O(n log n) time.
 */
#pragma once

#include "formats/chunks/chunks.h"

struct rfs_piece {
    uint32_t name, type; /* the piece's own; ids in the tables */
    uint32_t whole;      /* the type of its tensor; RFS_NO_ID: it ends where its pieces end */
    uint32_t file;
    uint32_t promised; /* files that have this piece, by what the file itself says; 1: nothing */
    uint64_t at;       /* as of its chunk */
    size_t corner;     /* where it begins in the tensor: from here on in corners */
};

/* Zero-initialise. */
struct rfs_pieces {
    struct rfs_chunks *boxes;
    RFS_VEC(struct rfs_piece) list;
    RFS_VEC(uint64_t) corners;
};
void rfs_pieces_free(struct rfs_pieces *pieces);

/* PIECE's corner is set here: CORNER has a number for each axis. False when out of memory. */
bool rfs_pieces_add(struct rfs_pieces *pieces, const struct rfs_piece *piece,
                    const uint64_t *corner);
/*
 * Declares, stores and finishes. Of equal pieces the one in the first file counts, and the others
 * are its further copies; where these are more than promised, the tensor is taken on trust. 0, or
 * -errno with *err filled: pieces that do not make one tensor, with its name.
 */
int rfs_pieces_finish(struct rfs_pieces *pieces, struct rfs_error *err);
