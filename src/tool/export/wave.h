/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which an export writes bytes. Files that take from the same sources are written side
 * by side, in a wave: the first piece of each, then the second of each, and so on. So a source's
 * bytes that several files want are wanted at about the same time, and are read from the disk once;
 * and where pieces of several files are made of the same (replicas of data parallelism), one is
 * assembled and written to all of them. Files that share nothing go side by side only as far as
 * there are threads, so that files that were begun are soon complete.
 *
 * Pure: knows no file system and no thread.
 */
#pragma once

#include "base/vec.h"

/* Files of a wave, at most: twice as many descriptors, and as many incomplete files at a time. */
#define RFS_WAVE_MOST 32

/* What decides a file's position in the order. */
struct rfs_wave_file {
    size_t file;             /* the caller's number for it */
    uint64_t size;           /* bytes */
    uint64_t cut;            /* a piece ends here as well; 0 or SIZE: nowhere */
    const uint32_t *sources; /* numbers of source files, each once; borrowed */
    uint32_t n_sources;
};

/*
 * Sorts files so that those that share sources are neighbours. FLAT: they are the files of one
 * whole checkpoint, which name the same sources but take different bytes, and are not sorted.
 */
void rfs_wave_sort(struct rfs_wave_file *files, size_t n, bool flat);

/*
 * Sets *count to how many of the first of N sorted files make a wave, at least one if there is any,
 * and *share to whether they share sources. 0 or -ENOMEM.
 */
int rfs_wave_next(const struct rfs_wave_file *files, size_t n, unsigned threads, bool flat,
                  size_t *count, bool *share);

/* A step: equal bytes for some files, which are read for the first of them. */
struct rfs_wave_item {
    uint64_t offset; /* offset in each file, bytes */
    uint32_t size;   /* bytes */
    uint32_t n;      /* files */
    size_t first;    /* index in members */
};

struct rfs_wave_plan {
    RFS_VEC(struct rfs_wave_item) items; /* items in the order of their beginning */
    RFS_VEC(uint32_t) members;           /* positions in the wave */
};

/* Returns the number of pieces of a file; PIECE is the size of one, bytes. */
uint64_t rfs_wave_pieces(const struct rfs_wave_file *file, uint64_t piece);
/* Sets offset and size of the I-th piece of a file. */
void rfs_wave_piece(const struct rfs_wave_file *file, uint64_t piece, uint64_t i, uint64_t *offset,
                    uint64_t *size);

/* The sources of a piece as two words, which are equal for equal bytes. */
struct rfs_wave_key {
    uint64_t word[2];
};
/*
 * Makes the items of a wave of N files, at most RFS_WAVE_MOST, in pieces of PIECE bytes. keys[f][i]
 * is the key of the I-th piece of file F; KEYS NULL: no two pieces are equal. 0 or -ENOMEM; to be
 * freed in any case.
 */
int rfs_wave_plan(const struct rfs_wave_file *files, size_t n, uint64_t piece,
                  struct rfs_wave_key *const *keys, struct rfs_wave_plan *out);
/* Frees what a plan owns. */
void rfs_wave_plan_free(struct rfs_wave_plan *plan);
