/* SPDX-License-Identifier: Apache-2.0 */
/* The memory limit of this process: the machine's memory, or less in a cgroup. */
#pragma once

#include "base/std.h"

/* Where the limits are found; borrowed. */
struct rfs_budget {
    uint64_t machine;    /* bytes */
    const char *cgroups; /* where the file systems of control groups are mounted: /sys/fs/cgroup */
    const char *self;    /* the list of the process's groups: /proc/self/cgroup */
};

/*
 * Bytes: the machine's memory, or the least limit of the process's groups (of either version) and
 * of those above them if that is less. Missing or unreadable limits are ignored.
 */
uint64_t rfs_budget_memory(const struct rfs_budget *budget);
