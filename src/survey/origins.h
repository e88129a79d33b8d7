/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sources of shown files' bytes, for writing whole files (reshard export). Files are named by
 * the ids that reshard_list gives. Unless documented otherwise they must be planned:
 * rfs_origins_plan_file has succeeded. (A successful reshard_getattr is not enough: it may use
 * sizes that an earlier view saved.)
 *
 * Threads: all functions.
 */
#pragma once

#include "base/error.h"
#include "reshard.h"

#include <sys/stat.h>

/* Bytes of a shown file that lie in one piece in one source file. */
struct rfs_origins_run {
    uint64_t begin, end; /* range in the shown file */
    uint32_t file;       /* id among the source files */
    uint64_t source;     /* offset of byte BEGIN in the source file */
    uint64_t id;         /* of the shown file */
};

/*
 * Finds the first run of at least LEAST bytes (1 or more) within [BEGIN, END) of a file. Decrypted,
 * cast or computed bytes do not count. Returns 1 with *out filled, 0 when there is none, or -errno.
 * Costs the slices of the parameters in between.
 */
int rfs_origins_find_run(struct reshard_view *view, uint64_t id, uint64_t begin, uint64_t end,
                         uint64_t least, struct rfs_origins_run *out);

/*
 * Calls USE with a descriptor of the source file of a run, unless that file is shorter. It is
 * valid during the call, and its offset is not the caller's. Returns 0, or -errno when the source
 * cannot be used, or has changed by the end of the call.
 */
typedef void rfs_origins_use_fn(void *ctx, int fd);
int rfs_origins_lend(struct reshard_view *view, const struct rfs_origins_run *run,
                     rfs_origins_use_fn *use, void *ctx);

/*
 * Makes a name for the sources of bytes [BEGIN, END) of a file: ranges with equal keys have equal
 * bytes as long as the sources stay as they are, in this view or in a later one of these source
 * files. A checksum that is computed has a key of its own file. Returns 0, -ENOMEM or -EIO. Costs
 * the slices of the parameters in between.
 */
int rfs_origins_key(struct reshard_view *view, uint64_t id, uint64_t begin, uint64_t end,
                    uint64_t key[2]);

/*
 * Plans a file, unless it is planned: its attributes may be known from an earlier view without
 * that. All functions above and the next need it. Returns 0, or -errno with *err filled.
 */
int rfs_origins_plan_file(struct reshard_view *view, uint64_t id, struct rfs_error *err);

/*
 * Gives source file I of a file: its resolved path, which is the view's, and its attributes as they
 * were recorded; ST may be NULL. Returns 1, 0 when the file has no more sources, or -errno.
 */
int rfs_origins_source(struct reshard_view *view, uint64_t id, uint32_t i, const char **path,
                       struct stat *st);
/*
 * Tells why a call for the file, shown as PATH, failed with CODE: the error of its first source
 * that cannot be read. Returns CODE with *err filled.
 */
int rfs_origins_source_failed(struct reshard_view *view, uint64_t id, const char *path, int code,
                              struct rfs_error *err);

/* What is known of a file beside its attributes. */
struct rfs_origins_about {
    const char *source; /* resolved path of the source that it is made from; the view's */
    uint32_t rank;      /* its destination rank; RFS_NO_RANK where files are of no rank alone */
    /*
     * Files that probably have one size, as those of a pipeline stage's ranks, share this number.
     */
    uint64_t kin;
    bool has_crc;     /* a computed checksum of the bytes before its trailer ends the file */
    uint64_t trailer; /* offset of the trailer */
};
/* Describes a file, planned or not; one that is not planned has no checksum yet. */
void rfs_origins_about(struct reshard_view *view, uint64_t id, struct rfs_origins_about *out);
/*
 * Sets a file's checksum, for a caller that has the bytes, so that they are not read again for it.
 */
void rfs_origins_set_crc(struct reshard_view *view, uint64_t id, uint32_t crc);

/*
 * Opens a reader as reshard_reader_open does, but nothing is read ahead: the caller requests
 * several ranges at once.
 */
int rfs_origins_open_scattered(struct reshard_view *view, uint64_t id, struct reshard_reader **out);
