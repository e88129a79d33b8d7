/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which requests may wait for sources. All others are answered from memory, at once: the guard does
 * that itself where no other thread is free. Threads: any.
 */
#pragma once

#include "mount/internal.h"

/* Of finding NAME in folder PARENT, with its attributes. */
bool rfs_waits_lookup(const struct rfs_mount *m, uint64_t parent, const char *name);
bool rfs_waits_getattr(const struct rfs_mount *m, uint64_t id);
/* Of listing folder DIR without attributes. */
bool rfs_waits_list(const struct rfs_mount *m, uint64_t dir);
