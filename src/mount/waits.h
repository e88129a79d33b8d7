/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which requests may wait for sources. All others are answered from memory, at once: the guard does
 * that itself where no other thread is free. Threads: any.
 */
#ifndef RFS_MOUNT_WAITS_H
#define RFS_MOUNT_WAITS_H

#include "mount/internal.h"

#include <stdbool.h>
#include <stdint.h>

/* Of finding NAME in folder PARENT, with its attributes. */
bool rfs_waits_lookup(const struct rfs_mount *m, uint64_t parent, const char *name);
bool rfs_waits_getattr(const struct rfs_mount *m, uint64_t id);
/* Of listing folder DIR without attributes. */
bool rfs_waits_list(const struct rfs_mount *m, uint64_t dir);

#endif
