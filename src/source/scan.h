/* SPDX-License-Identifier: Apache-2.0 */
/* Which file each rank has: the folders of a source tree, listed without opening a file. */
#ifndef RFS_SOURCE_SCAN_H
#define RFS_SOURCE_SCAN_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Highest rank number that is accepted. */
#define RFS_MAX_RANK (1u << 20)

struct rfs_scanned {
    uint32_t rank;
    char *folder; /* name within the source, "rank_3" */
    char *file;   /* name within the folder; NULL: it has no checkpoint */
};

struct rfs_scan {
    struct rfs_scanned *data; /* ascending by rank, each rank once */
    size_t n, cap;
    size_t present; /* how many have a file; at least 1 */
};

/* ROOT is absolute and resolved. Nothing is owned by the caller on failure. */
int rfs_scan_open(const char *root, struct rfs_scan *out, struct rfs_error *err);
void rfs_scan_free(struct rfs_scan *scan);

/* Whether a folder of that name is a rank's: rank_ and digits. */
bool rfs_scan_is_rank(const char *name);
/* The name of the checkpoint that counts in FOLDER, malloc'ed; NULL when it holds none. 0 or -errno. */
int rfs_scan_folder(const char *folder, char **file, struct rfs_error *err);

#endif
