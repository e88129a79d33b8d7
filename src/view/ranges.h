/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sources of shown files' bytes, for writing whole files (reshard export). Files are named by
 * the ids that reshard_list gives. Unless documented otherwise they must be planned:
 * rfs_view_plan_file has succeeded. (A successful reshard_getattr is not enough: it may use sizes
 * that an earlier view saved.)
 *
 * Threads: all functions.
 */
#pragma once

#include "catalog/catalog.h"
#include "reshard.h"

/* Bytes of a shown file that lie in one piece in one source file. */
struct rfs_view_run {
    uint64_t begin, end; /* range in the shown file */
    uint32_t file;       /* id among the source files */
    uint64_t source;     /* offset of byte BEGIN in the source file */
};

/*
 * Finds the first run of at least LEAST bytes (1 or more) within [BEGIN, END) of a file. Decrypted
 * or cast bytes do not count. Returns 1 with *out filled, 0 when there is none, or -errno. Costs
 * the slices of the parameters in between.
 */
int rfs_view_find_run(struct reshard_view *view, uint64_t id, uint64_t begin, uint64_t end,
                      uint64_t least, struct rfs_view_run *out);

/*
 * Makes a name for the sources of bytes [BEGIN, END) of a file: ranges with equal keys have equal
 * bytes as long as the sources stay as they are, in this view or in a later one of these source
 * files. A checksum that is computed has a key of its own file. Returns 0, -ENOMEM or -EIO. Costs
 * the slices of the parameters in between.
 */
int rfs_view_key(struct reshard_view *view, uint64_t id, uint64_t begin, uint64_t end,
                 uint64_t key[2]);

/*
 * Plans a file, unless it is planned: its attributes may be known from an earlier view without
 * that. All functions above and the next need it. Returns 0, or -errno with *err filled.
 */
int rfs_view_plan_file(struct reshard_view *view, uint64_t id, struct rfs_error *err);

/* Returns the source files that a file depends on, ids in *files. Both are the view's. */
const uint32_t *rfs_view_sources(struct reshard_view *view, uint64_t id, uint32_t *n,
                                 struct rfs_files **files);
/* Returns the resolved path of the source that the file is made from. */
const char *rfs_view_source_path(struct reshard_view *view, uint64_t id);

/*
 * Returns the destination rank of a file, planned or not; RFS_NO_RANK in a view that has a file for
 * no rank alone.
 */
uint32_t rfs_view_rank(struct reshard_view *view, uint64_t id);

/*
 * Returns a number that files share which probably have one size, as those of the ranks of a
 * pipeline stage have. They need not be planned.
 */
uint64_t rfs_view_kin(struct reshard_view *view, uint64_t id);

/*
 * Returns whether a file ends with a computed checksum of the bytes before its trailer, which
 * begins at *trailer.
 */
bool rfs_view_has_crc(struct reshard_view *view, uint64_t id, uint64_t *trailer);
/* Sets this checksum, for a caller that has the bytes, so that they are not read again for it. */
void rfs_view_set_crc(struct reshard_view *view, uint64_t id, uint32_t crc);

/*
 * Opens a reader as reshard_reader_open does, but nothing is read ahead: the caller requests
 * several ranges at once.
 */
int rfs_view_reader_open_scattered(struct reshard_view *view, uint64_t id,
                                   struct reshard_reader **out);
