/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two arguments of every walker of a file's headers: a read function, and the tables that it
 * fills.
 */
#pragma once

#include "base/intern.h"

/* Gives 0 and N whole bytes from OFFSET, or -errno, which the walker passes on. */
typedef int rfs_read_fn(void *ctx, void *buf, size_t n, uint64_t offset);

/*
 * The names and types of all files of a source; their ids are the same in each index. Thread-safe.
 */
struct rfs_tables {
    struct rfs_intern *names;
    struct rfs_intern *types; /* of struct rfs_type */
};
