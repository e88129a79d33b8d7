/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's table of mounts. */
#pragma once

#include "base/std.h"

#include <sys/types.h>

struct rfs_mounted {
    unsigned long id; /* from 1 up, unique while it is mounted; 0: unknown */
    dev_t device;
    bool ours;         /* by its type, which subtype= replaces */
    char source[4096]; /* its source, as mount(8) prints it; cut if it is longer */
};

/*
 * The topmost mount at PATH, absolute and without links. 0, -ENOENT when nothing is mounted there,
 * or -EIO when the table can't be read; *out is unknown then.
 */
int rfs_table_find(const char *path, struct rfs_mounted *out);
