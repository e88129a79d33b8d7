/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of a zip archive whose entries are stored, as torch.save writes them: where each
 * entry's bytes lie. Contents are not read. zip.c draws the format.
 *
 * All claims of the directory are checked: entries lie within the file and apart from each other,
 * their local headers are there and agree in name, method and size, no name comes twice.
 *
 * Cost of opening: the directory is read at once, then 4 KiB for each local header that is not
 * among those of the last one; O(n log n).
 */
#pragma once

#include "base/budget.h"
#include "formats/walker.h"

#define RFS_ZIP_NAME_MOST 1024                       /* bytes of an entry's name */
#define RFS_ZIP_LOCAL_BYTES 30                       /* bytes of a local header before the name */
#define RFS_ZIP_DIRECTORY_MOST (UINT64_C(256) << 20) /* bytes of a directory that is read */

struct rfs_zip_entry {
    const char *name; /* owned by the archive; no NUL in it, one after it */
    uint32_t name_bytes;
    uint32_t crc;    /* CRC-32 in the directory; 0 means that it was not computed, or is 0 */
    uint64_t header; /* where its local header is in the file */
    uint64_t offset; /* where the content is in the file */
    uint64_t bytes;
};

/* Cost: 40 bytes an entry and the directory's own bytes. Zero-initialise, free by rfs_zip_free. */
struct rfs_zip {
    size_t n;
    struct rfs_zip_entry *entries; /* ascending by name (bytes) */
    char *names;
};

/*
 * Reads the directory of an archive. 0; -EINVAL for an invalid archive, -ENOTSUP for compressed,
 * encrypted or split ones, -EFBIG beyond the BUDGET (or NULL) for its memory, -ENOMEM, or a read's
 * error, each with *err filled. The caller must hold no share (base/budget.h).
 */
int rfs_zip_open(const struct rfs_bytes_source *from, struct rfs_budget *budget,
                 struct rfs_zip *out, struct rfs_error *err);
void rfs_zip_free(struct rfs_zip *zip);

/* Returns the entry of that name, or NULL. O(log n). */
const struct rfs_zip_entry *rfs_zip_find(const struct rfs_zip *zip, const char *name,
                                         size_t length);

/*
 * Reads the contents of N entries of that file and compares each with the CRC-32 of the directory.
 * Returns 0 when all are right, 1 when entries with content have no CRC-32 (it is 0 there; all
 * others are right), or -errno with *err filled: -EINVAL for an entry with another one. Takes up to
 * 1 MiB.
 */
int rfs_zip_verify_entries(const struct rfs_bytes_source *from, const struct rfs_zip_entry *entries,
                           size_t n, struct rfs_error *err);
/* Opens an archive and verifies all of its entries. Errors are also those of rfs_zip_open. */
int rfs_zip_verify(const struct rfs_bytes_source *from, struct rfs_error *err);
