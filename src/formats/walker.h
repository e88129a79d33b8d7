/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two arguments of every walker of a file's headers: the function that reads, and the tables that
 * the walker fills.
 */
#pragma once

#include "base/intern.h"

/* Reads N whole bytes from OFFSET. Returns 0, or -errno, which the walker passes on. */
typedef int rfs_read_fn(void *ctx, void *buf, size_t n, uint64_t offset);

/*
 * The names and types of all files of a source; their ids are the same in each index. Thread-safe.
 */
struct rfs_tables {
    struct rfs_intern *names;
    struct rfs_intern *types; /* each a struct rfs_type */
};
