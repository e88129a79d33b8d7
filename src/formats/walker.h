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

/* Tensors whose names do not begin with what entry= says, beside others whose names do. */
struct rfs_outside {
    size_t n;
    char first[96]; /* the first name, cut if it is longer */
};

static inline void rfs_outside_note(struct rfs_outside *outside, const char *name, size_t n)
{
    if (outside->n++ == 0)
        snprintf(outside->first, sizeof outside->first, "%.*s",
                 (int)(n < sizeof outside->first ? n : sizeof outside->first), name);
}
