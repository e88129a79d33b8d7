/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two arguments of every walker of a file's headers: the bytes that it reads, and the tables that
 * it fills.
 */
#pragma once

#include "base/intern.h"
#include "base/io.h"

/*
 * The names and types of all files of a source; their ids are the same in each index. Thread-safe.
 */
struct rfs_tables {
    struct rfs_intern *names;
    struct rfs_intern *types; /* each a struct rfs_type */
};
