/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes are written when. Files that take from the same sources are written side by side, in
 * a wave: piece by piece, each of them the first, then each the second. So a source's bytes that
 * several files want are wanted at about the same time, and are read from the disk once; and where
 * pieces of several files are made of the same (replicas of data parallelism), one is assembled and
 * written to all of them. Files that share nothing go side by side only as far as there are
 * threads, so that files that were begun are soon complete.
 *
 * Pure: knows no file system and no thread.
 */
#pragma once

#include "base/vec.h"

#define RFS_WAVE_MOST                                                                              \
    32 /* files; as many descriptors, twice, and as many that are incomplete at a time */

/* A file to be written, as far as its place in the order goes. */
struct rfs_wave_file {
    size_t file;             /* the caller's number for it */
    uint64_t size;           /* bytes */
    uint64_t cut;            /* a piece ends here as well; 0 or SIZE: nowhere */
    const uint32_t *sources; /* borrowed: numbers of source files, each once */
    uint32_t n_sources;
};

/*
 * Sorts files so that those that share sources are neighbours. FLAT: the files of one whole
 * checkpoint, which name the same sources but take different bytes; they stay as they are.
 */
void rfs_wave_sort(struct rfs_wave_file *files, size_t n, bool flat);

/*
 * How many of the first of N sorted files make a wave, at least one if there is any. *share:
 * whether they share sources. 0 or -ENOMEM.
 */
int rfs_wave_next(const struct rfs_wave_file *files, size_t n, unsigned threads, bool flat,
                  size_t *count, bool *share);

/* One step: the same bytes for each of some files, whose first is the one to be read. */
struct rfs_wave_item {
    uint64_t offset; /* in all of them */
    uint32_t size;   /* bytes */
    uint32_t n;      /* files */
    size_t first;    /* of them in members */
};

struct rfs_wave_plan {
    RFS_VEC(struct rfs_wave_item) items; /* in the order in which they are to be begun */
    RFS_VEC(uint32_t) members;           /* positions in the wave */
};

/* Pieces of a file, and the I-th of them. */
uint64_t rfs_wave_pieces(const struct rfs_wave_file *file, uint64_t piece);
void rfs_wave_piece(const struct rfs_wave_file *file, uint64_t piece, uint64_t i, uint64_t *offset,
                    uint64_t *size);

/* The sources of a piece, as two words: equal for equal bytes. */
struct rfs_wave_key {
    uint64_t word[2];
};
/*
 * The items of a wave of N files in pieces of PIECE bytes. keys[f][i] is that of the I-th piece of
 * file F; NULL: no two are the same. 0 or -ENOMEM; to be freed in any case.
 */
int rfs_wave_plan(const struct rfs_wave_file *files, size_t n, uint64_t piece,
                  struct rfs_wave_key *const *keys, struct rfs_wave_plan *out);
void rfs_wave_plan_free(struct rfs_wave_plan *plan);
