/* SPDX-License-Identifier: Apache-2.0 */
/* The memory limit of this process: the machine's memory, or less in a cgroup. */
#pragma once

#include "base/std.h"

/* Places where limits are found; the texts are borrowed. */
struct rfs_memory_limits {
    uint64_t machine;    /* memory of the machine, in bytes */
    const char *cgroups; /* mount point of the file systems of control groups: /sys/fs/cgroup */
    const char *self;    /* path of the list of the process's groups: /proc/self/cgroup */
};

/*
 * Returns, in bytes, the machine's memory, or the least limit of the process's groups (of either
 * version) and of those above them if that is less. Ignores limits that are missing or unreadable.
 */
uint64_t rfs_memory_limit(const struct rfs_memory_limits *limits);
