/* SPDX-License-Identifier: Apache-2.0 */
/* Which file each rank has: the folders of a source tree, listed without opening a file. */
#ifndef RFS_SOURCE_SCAN_H
#define RFS_SOURCE_SCAN_H

#include "base/error.h"

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

#endif
