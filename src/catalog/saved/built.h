/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a rank, with the indexes of its files. */
#pragma once

#include "formats/index.h"

/*
 * An index and its pieces. Several may own an index of one file together. Once a rank of several
 * files has the entries of all, and each file's index serves as a prediction of other ranks: of one
 * rank, a rank that was built without a prediction. Others let go of it.
 */
struct rfs_built {
    const struct rfs_index *index; /* merged, or the only piece */
    struct rfs_index *merged;      /* the index, if it was merged of pieces; owned */
    atomic_bool warned; /* its files caused log messages, which the next view must repeat */
    uint32_t number;    /* used while indexes are saved; saved/write.c */
    uint32_t from;      /* the number under which it was saved before; RFS_NO_ID: it was not */
    uint64_t used;      /* as the next ones, while room is made; catalog/evict.c */
    bool dropped;
    uint32_t n_pieces;
    struct rfs_index *pieces[]; /* of one file each; owned; NULL: let go of */
};

/* With nothing but room for PIECES; NULL when out of memory. */
struct rfs_built *rfs_built_new(uint32_t pieces);
/* How many bytes of indexes are free then. */
size_t rfs_built_free(struct rfs_built *built);
/* Bytes of memory that its indexes take, but for those that it owns together with others. */
size_t rfs_built_memory(const struct rfs_built *built);
