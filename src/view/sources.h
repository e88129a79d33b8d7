/* SPDX-License-Identifier: Apache-2.0 */
/* The source files, and their ranks, that an object is made of. */
#pragma once

#include "view/hidden.h"

/* Zero-initialise; owned. */
struct rfs_sources {
    uint32_t *files; /* ids in the catalogue's files, ascending */
    size_t n_files;
    uint32_t *ranks; /* ascending; not those that have another's files */
    size_t n_ranks;
};

void rfs_sources_free(struct rfs_sources *sources);
/* Of these N files, in any order. 0 or -ENOMEM. O(n log n + ranks of the source). */
int rfs_sources_of_files(const struct rfs_view *view, const uint32_t *files, size_t n,
                         struct rfs_sources *out);
/* Of all bytes of a target. 0 or -errno. Costs its slice. */
int rfs_sources_of_target(const struct rfs_view *view, const struct rfs_tensors *tensors,
                          uint32_t target, struct rfs_sources *out);
/* Of the whole source: all ranks that have files. 0 or -ENOMEM. */
int rfs_sources_of_all(const struct rfs_view *view, struct rfs_sources *out);
