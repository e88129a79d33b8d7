/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that one state is divided over, as a reader of such a format takes them, and what it says
 * of the state.
 */
#pragma once

#include "formats/chunks/chunks.h"
#include "formats/index.h"

struct rfs_files;

/* The parts of a state, for opening it. FOLDER and FILES outlive the result. */
struct rfs_chunks_parts {
    const char *folder;
    struct rfs_files *files;
    uint32_t n_parts;
    uint64_t most;     /* bytes of memory that headers may take */
    bool uneven_steps; /* parts whose optimizers count different steps are one save, too */
    /*
     * Returns the number of a part's file in FILES, where the parts follow each other; UINT32_MAX
     * when it is missing.
     */
    uint32_t (*part)(const void *ctx, uint32_t part);
    const void *ctx;
};

/* What is in a state: the first has the tensors. WHAT is a constant, such as "model". */
#define RFS_CHUNKS_STATE 2
struct rfs_chunks_state {
    const char *what;
    size_t n;
};
/*
 * Opens the state in PARTS with the tables of TO, calls EACH for the tensors of the first of OUT,
 * with the offset 0, and fills OUT. 0, or -errno with *err filled.
 */
typedef int rfs_chunks_state_fn(const struct rfs_chunks_parts *parts,
                                const struct rfs_chunks_source *to, rfs_index_each_fn *each,
                                void *ctx, struct rfs_chunks_state out[RFS_CHUNKS_STATE],
                                struct rfs_error *err);
