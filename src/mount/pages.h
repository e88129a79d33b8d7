/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that the kernel keeps of files, and is to drop. */
#pragma once

#include "mount/internal.h"

/*
 * Whether pages may be dropped at any time. With a single thread they may not, since only it could
 * answer the reads that dropping waits for: the next open drops them then.
 */
bool rfs_pages_can_go(const struct rfs_mount *mount);

/*
 * Drops the pages of an inode: after the reply, because it waits for pages that are being read, and
 * not from the guard's thread. While one thread drops pages, the others leave theirs to it.
 */
void rfs_pages_drop(struct rfs_mount *mount, fuse_ino_t ino);
