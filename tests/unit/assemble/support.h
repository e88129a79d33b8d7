/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors cut in random grids, written to real files, and slices of them with the bytes they must
 * have.
 */
#ifndef TESTS_UNIT_ASSEMBLE_SUPPORT_H
#define TESTS_UNIT_ASSEMBLE_SUPPORT_H

#include "assemble/assembler.h"
#include "catalog/catalog.h"
#include "plan/slice.h"

struct random {
    uint64_t state;
};
/* From RFS_SEED or the clock; printed. */
struct random random_start(void);
uint64_t random_next(struct random *random);
/* In [0, n). */
uint64_t random_below(struct random *random, uint64_t n);
/* In [low, high]. */
uint64_t random_in(struct random *random, uint64_t low, uint64_t high);

#define MAX_CELLS 64

/* A tensor and its cells, each in the file of one rank. */
struct world {
    char root[64];
    uint32_t ndim;
    uint64_t dims[6];
    uint64_t pieces[6]; /* per axis; divides dims */
    uint64_t elem;      /* bytes */
    int16_t plus;       /* that slices add to elements of 4 or 8 bytes, as floating-point numbers */
    uint64_t cells;
    unsigned char *tensor;
    struct rfs_entry entry[MAX_CELLS];
    struct rfs_extent extents[MAX_CELLS][3];
    struct rfs_catalog *catalog;
    struct rfs_files *files;
};

/* Writes the files of the tensor that dims, pieces and elem describe. */
void world_open(struct world *world, struct random *random);
void world_close(struct world *world);
/*
 * Makes an assembler to which sources are never slow, on however loaded a machine. Sources that
 * made two reads wait are read in windows, and are in no band: what a test counts would differ.
 * Returns NULL when out of memory.
 */
struct rfs_assembler *world_fast_assembler(struct world *world, uint64_t budget,
                                           struct rfs_pool *pool);
/* Random dims, pieces and elem; about BYTES of tensor at most. */
void world_random(struct world *world, struct random *random, uint64_t bytes);
/* Changes a byte of the file that holds the cell, and its times. */
void world_spoil(const struct world *world, uint64_t cell);

/* A box of the tensor: its slice, and its bytes element by element. Each to be freed. */
struct rfs_slice world_slice(const struct world *world, const uint64_t *from, const uint64_t *size,
                             bool folded);
unsigned char *world_bytes(const struct world *world, const uint64_t *from, const uint64_t *size);
/* A random box, of which both are made. */
struct rfs_slice world_box(const struct world *world, struct random *random, unsigned char **bytes);

#endif
