/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of whole tensors, for the view: what only inspect.h's other functions need of them. */
#pragma once

#include "formats/hfai/hfai.h"
#include "plan/planner.h"
#include "view/inspect.h"
#include "view/tensors.h"

/*
 * Takes for WHOLE what a view of CUT's destination describes as whole tensors (view=dcp,
 * view=mindformers): a tensor that only one of the two strategies has is not cut there, and is what
 * the first rank has of it. Returns 0, or -errno with *err filled.
 */
int rfs_whole_describe(struct rfs_whole *whole, const struct rfs_whole *cut, struct rfs_error *err);

/*
 * Returns the next tensor from *AT on, which begins as 0, that lost ranks had alone, as far as the
 * plans that were made tell; sets *rank to one of those ranks. NULL: no more.
 */
const char *rfs_whole_lost(const struct rfs_whole *whole, uint32_t *at, uint32_t *rank);
/*
 * Makes the slice of a tensor: zero-initialised or one to use again, to be freed by rfs_slice_free.
 * Returns 0 or -errno.
 */
int rfs_whole_slice(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                    struct rfs_slice *slice);

/*
 * Reads bytes [begin, begin + size) of a tensor whose SLICE that is, or of another copy of it, as
 * shown. Returns 0, or -errno with *err filled.
 */
int rfs_whole_read(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                   const struct rfs_slice *slice, uint64_t begin, size_t size, void *buf,
                   struct rfs_error *err);

/* The source of a byte of a tensor as shown. */
struct rfs_whole_source {
    const char *file; /* NULL: nowhere; the catalogue's */
    uint32_t rank;
    uint64_t offset; /* offset of the byte's element in the file */
    /* bytes of the tensor, as shown, that go on from there in this file; at least 1 */
    uint64_t left;
};
struct rfs_whole_source rfs_whole_locate(const struct rfs_whole *whole,
                                         const struct rfs_whole_tensor *tensor,
                                         const struct rfs_slice *slice, uint64_t at);

/* Returns the N values of hfai's parts that are not tensors, sorted by name and hash. */
const struct rfs_hfai_value *rfs_whole_values(const struct rfs_whole *whole, size_t *n);
