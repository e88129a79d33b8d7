/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The indexes of a source's ranks, kept on disk for the next view. kept.h describes the folder
 * and which files are trusted. Ranks that share an index in memory share one on disk.
 *
 * A rank's index is used only if each of its files has the path, inode, size, mtime and ctime that
 * are kept with it. An index that does not fit the files' sizes or its own tables is ignored.
 *
 * Cost in memory: the table (the text of the names, 144 bytes a type, about 150 a rank). Indexes
 * are read when they are asked for.
 */
#pragma once

#include "base/vec.h"
#include "catalog/built.h"
#include "catalog/kept.h"

#define RFS_KEPT_NONE UINT32_MAX
#define RFS_KEPT_INDEX_BYTES 24 /* size of an index in the table */

/* A rank, and the number of its struct rfs_kept_built. */
struct rfs_kept_rank {
    uint32_t rank, number;
    size_t first; /* place of its first file in sources */
    uint32_t n_files;
};

/* The indexes of a rank's files and the merged one, as numbers of indexes or RFS_KEPT_NONE. */
struct rfs_kept_built {
    size_t first; /* place of the first file's in of_files */
    uint32_t n_files;
    uint32_t merged;
};

/* The kept file, opened. */
struct rfs_kept_index {
    struct rfs_kept_file file;
    RFS_VEC(uint32_t) names; /* ids by number */
    RFS_VEC(uint32_t) types;
    const unsigned char *indexes; /* list in the table */
    uint32_t n_indexes;
    RFS_VEC(struct rfs_kept_built) builts; /* by number */
    RFS_VEC(uint32_t) of_files;
    RFS_VEC(struct rfs_kept_rank) ranks;
    RFS_VEC(struct rfs_kept_source) sources;
};

/* Opens the kept indexes of that key, or returns NULL. Adds their names and types to TABLES. */
struct rfs_kept_index *rfs_kept_index_load(struct rfs_kept *kept, const char *key,
                                           const struct rfs_tables *tables);
/* Parses a file that was opened, and takes it over. For tests, too. */
struct rfs_kept_index *rfs_kept_index_take(struct rfs_kept_file *file,
                                           const struct rfs_tables *tables);
void rfs_kept_index_free(struct rfs_kept_index *index);

/*
 * Returns the number of a rank whose N_FILES files are those in FILES from FIRST on, if their marks
 * are unchanged; else RFS_NO_ID. Ranks with the same number have the same indexes.
 */
uint32_t rfs_kept_index_find(const struct rfs_kept_index *index, uint32_t rank,
                             struct rfs_files *files, uint32_t first, uint32_t n_files);
/*
 * Reads the indexes of that number, checked against the sizes of the files of a rank that
 * rfs_kept_index_find gave it for. The caller's (rfs_built_free), or NULL.
 */
struct rfs_built *rfs_kept_index_read(const struct rfs_kept_index *index, uint32_t number,
                                      const struct rfs_tables *tables, struct rfs_files *files,
                                      uint32_t first);

/* One rank to be kept. */
struct rfs_keeping {
    uint32_t rank;
    uint32_t first, n_files; /* its files */
    struct rfs_built *built; /* or NULL: the indexes of the number BEFORE */
    uint32_t before;
};
/*
 * Keeps those of N ranks whose files were settled before OPENED. Replaces the data kept under that
 * key before: BEFORE, or NULL. False when nothing was written. One call at a time for the same
 * BUILTs.
 */
bool rfs_kept_index_store(struct rfs_kept *kept, const char *key, const struct rfs_tables *tables,
                          struct rfs_files *files, struct timespec opened,
                          const struct rfs_kept_index *before, const struct rfs_keeping *ranks,
                          size_t n);

/* ---- for tests ------------------------------------------------------------------------------- */

/* The names and types of a table: to ids when reading, and from ids when writing. */
struct rfs_kept_numbers {
    uint32_t n_names, n_types;
    const uint32_t *names, *types;
};
/*
 * Returns the kept bytes of index NUMBER, which the caller owns; NULL when they have changed. Other
 * files than kept_index.c call it for tests alone.
 */
void *rfs_kept_index_read_body(const struct rfs_kept_index *index, uint32_t number, size_t *n);
/*
 * Parses them. Returns NULL for an index that is invalid for files with those sizes. Other files
 * than kept_index.c call it for tests alone.
 */
struct rfs_index *rfs_kept_body_take(const void *bytes, size_t n,
                                     const struct rfs_kept_numbers *numbers,
                                     struct rfs_intern *types, const uint64_t *file_bytes,
                                     uint32_t n_files);
