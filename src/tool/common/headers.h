/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers of all ranks of a source, and which ranks have the same.
 *
 * Every rank's headers are read, in parallel, or of a large tree the first of each kind and samples
 * of the others (rfs_catalog_resembles): then a rank of 10,000 parameters costs a dozen small
 * reads. Costs 64 bytes a rank beside the indexes; ranks that are alike share one.
 */
#pragma once

#include "base/vec.h"
#include "catalog/catalog.h"
#include "tool/common/progress.h"

#define RFS_NO_KIND UINT32_MAX

struct rfs_headers_rank {
    uint32_t rank;
    uint32_t kind;  /* of the index; RFS_NO_KIND: it has none, see below */
    uint64_t bytes; /* of its files, as they are on disk */
    bool sampled;   /* its kind was found by samples */
    bool empty;     /* its file holds no parameters */
    int code;       /* why it could not be read; 0 */
    char *why;      /* the message; owned */
};

/* Ranks with the same index. */
struct rfs_headers_kind {
    const struct rfs_index *index; /* the catalogue's */
    uint32_t lead;                 /* the lowest of them that was read */
    uint32_t ranks;
};

struct rfs_headers {
    struct rfs_catalog *catalog;    /* borrowed */
    struct rfs_headers_rank *ranks; /* those that have files, ascending */
    uint32_t n;
    RFS_VEC(struct rfs_headers_kind) kinds; /* in the order of their leads */
    bool sampled;
};

/*
 * ALL: samples are never enough. PROGRESS may be NULL. 0 or -ENOMEM with *err filled: ranks that
 * cannot be read have their own messages. To be freed in any case.
 */
int rfs_headers_read(struct rfs_catalog *catalog, struct rfs_pool *pool, bool all,
                     struct rfs_progress *progress, struct rfs_headers *out, struct rfs_error *err);
void rfs_headers_free(struct rfs_headers *headers);

/* The rank, or NULL. O(log n). */
const struct rfs_headers_rank *rfs_headers_find(const struct rfs_headers *headers, uint32_t rank);
/* The index of a rank's kind, or NULL. */
static inline const struct rfs_index *rfs_headers_index(const struct rfs_headers *headers,
                                                        const struct rfs_headers_rank *rank)
{
    return rank->kind == RFS_NO_KIND ? NULL : headers->kinds.data[rank->kind].index;
}
/* The value of that name in a rank, or NULL. */
const struct rfs_type *rfs_headers_type(const struct rfs_headers *headers,
                                        const struct rfs_headers_rank *rank, uint32_t name);
