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

/* A part of a shown file that lies in one piece in one source file. */
struct rfs_plain {
    uint64_t begin, end; /* in the shown file */
    uint32_t file;       /* id among the source files */
    uint64_t source;     /* where byte BEGIN is in there */
};

/*
 * The first such part of at least LEAST bytes (1 or more) within [BEGIN, END) of a file. Decrypted
 * or converted bytes do not count. 1 with *out filled, 0 when there is none, or -errno. Costs the
 * slices of the parameters in between.
 */
int rfs_view_plain(struct reshard_view *view, uint64_t id, uint64_t begin, uint64_t end,
                   uint64_t least, struct rfs_plain *out);

/*
 * A name for the sources of bytes [BEGIN, END) of a file: ranges with equal keys have equal bytes
 * as long as the sources stay as they are, in this view or in a later one of the same source files.
 * A checksum that is computed has a key of its own file. 0, -ENOMEM or -EIO. Costs the slices of
 * the parameters in between.
 */
int rfs_view_key(struct reshard_view *view, uint64_t id, uint64_t begin, uint64_t end,
                 uint64_t key[2]);

/*
 * Plans a file, unless it is planned: its attributes may be known from an earlier view without
 * that. All above and the next need it. 0, or -errno with *err filled.
 */
int rfs_view_plan_file(struct reshard_view *view, uint64_t id, struct rfs_error *err);

/* The source files that a file depends on, ids in *files. Both are the view's. */
const uint32_t *rfs_view_sources(struct reshard_view *view, uint64_t id, uint32_t *n,
                                 struct rfs_files **files);
/* The resolved path of the source that the file is made from. */
const char *rfs_view_source_path(struct reshard_view *view, uint64_t id);

/*
 * The destination rank that a file is of, planned or not; RFS_NO_RANK in a view that has a file for
 * no rank alone.
 */
uint32_t rfs_view_rank(struct reshard_view *view, uint64_t id);

/*
 * A number that files share which are probably of the same size, as those of the ranks of a
 * pipeline stage are. Also of files that are not planned.
 */
uint64_t rfs_view_kin(struct reshard_view *view, uint64_t id);

/*
 * Where the computed checksum of the whole file begins, which is that of the bytes before its
 * trailer, from *trailer on; false when it has none. A caller that has those bytes anyway sets the
 * checksum, so that they are not read again for it.
 */
bool rfs_view_has_crc(struct reshard_view *view, uint64_t id, uint64_t *trailer);
void rfs_view_tell_crc(struct reshard_view *view, uint64_t id, uint32_t crc);

/* As reshard_reader_open, but nothing is read ahead: the caller requests several ranges at once. */
int rfs_view_reader_scattered(struct reshard_view *view, uint64_t id, struct reshard_reader **out);

/* The owner of guarded memory for plain text; NULL: sources are plain anyway. */
struct rfs_secret *rfs_view_secret(const struct reshard_view *view);
