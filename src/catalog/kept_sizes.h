/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of the files that a view shows, and the source files that each is made of, kept on disk for
 * the next view of this source beside the indexes (kept_index.h; kept.h describes the folder). They
 * hold while all files of the source have the path, inode, size, mtime and ctime that are kept with
 * them.
 *
 * Cost: 24 bytes a file shown, 4 for each of its sources, about 150 a source file.
 */
#pragma once

#include "base/pool.h"
#include "base/vec.h"
#include "catalog/catalog.h"
#include "catalog/kept.h"

#define RFS_KEPT_UNKNOWN UINT64_MAX

/* A file that is shown. */
struct rfs_kept_size {
    uint64_t size;                /* RFS_KEPT_UNKNOWN: nothing is known of it */
    const unsigned char *sources; /* [n] u32, ids of source files; not aligned; borrowed */
    uint32_t n;
};

/* Any thread may use it: once it is open, only the time of its last check changes. */
struct rfs_kept_sizes;

/*
 * Opens the sizes of N_FILES files that are kept under KEY for a catalogue; NULL: there are none
 * that hold. Examines all files of the source, on POOL.
 */
struct rfs_kept_sizes *rfs_kept_sizes_load(struct rfs_catalog *catalog, struct rfs_pool *pool,
                                           const char *key, size_t n_files);
void rfs_kept_sizes_free(struct rfs_kept_sizes *sizes);
struct rfs_kept_size rfs_kept_sizes_file(const struct rfs_kept_sizes *sizes, size_t file);
/* Returns whether no file of the source had changed a second ago; examines them if need be. */
bool rfs_kept_sizes_hold(struct rfs_kept_sizes *sizes);
/* Returns whether ST are the attributes that are kept of a source file. */
bool rfs_kept_sizes_mark_is(const struct rfs_kept_sizes *sizes, uint32_t id, const struct stat *st);

/* ---- keeping --------------------------------------------------------------------------------- */

/*
 * Hashes the files of each rank of the source, which the list of all files lacks, for a key. False
 * when out of memory.
 */
bool rfs_kept_sizes_ranks(const struct rfs_catalog *catalog, uint64_t *hash);
/*
 * Begins a table with the marks of all files of the source. Returns false unless all were settled
 * before the catalogue was opened. Sets *before, the sizes that were kept or NULL, to NULL if they
 * are of other files.
 */
bool rfs_kept_sizes_begin(struct rfs_catalog *catalog, const struct rfs_kept_sizes **before,
                          size_t n_files, struct rfs_bytes *table);
/* Puts the next file; SOURCES are [n] u32. */
void rfs_kept_sizes_put(struct rfs_bytes *table, uint64_t size, const void *sources, uint32_t n);
/* Keeps the table under a key, in place of what was there. */
void rfs_kept_sizes_finish(struct rfs_catalog *catalog, const char *key, struct rfs_bytes *table);
