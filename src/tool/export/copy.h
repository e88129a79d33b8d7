/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that the file system itself takes over from a source, where it can: shared blocks (btrfs,
 * XFS and others, by FICLONERANGE), or a copy on the server (NFS, SMB, Ceph, by copy_file_range).
 * Elsewhere copy_file_range would have the kernel copy pages, which costs as much as writing what
 * has been read already, since all is read for the checksum. The first refusal ends the tries.
 *
 * Threads: all functions.
 */
#pragma once

#include "view/ranges.h"

#include <stdatomic.h>

/* Shorter ranges are written. */
#define RFS_COPY_LEAST (UINT64_C(1) << 20)

enum rfs_copy_way { RFS_COPY_NOT, RFS_COPY_CLONE, RFS_COPY_SERVER };

struct rfs_copier {
    atomic_int way;                    /* an rfs_copy_way */
    uint64_t block;                    /* of the file system, bytes: whole blocks are shared */
    atomic_uint_least64_t bytes_taken; /* over from sources */
};

/* For files on the file system of FD. */
void rfs_copier_init(struct rfs_copier *copier, int fd);

/*
 * Takes as much of PLAIN as it can over into the shown file that is written to FD, whose offsets
 * PLAIN's are. [*begin, *end) is the range that it took, maybe empty. 0, or -errno when the source
 * has changed or cannot be used.
 */
int rfs_copier_take(struct rfs_copier *copier, struct rfs_files *files,
                    const struct rfs_plain *plain, int fd, uint64_t *begin, uint64_t *end);
