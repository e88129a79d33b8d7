/* SPDX-License-Identifier: Apache-2.0 */
/* Inside prefetch.c: which requests ranges of source files become. No lock, no I/O. */
#pragma once

#include "assemble/gather.h"

#define RFS_PREFETCH_MOST 512 /* windows */
#define RFS_PREFETCH_NEAR 96  /* of files */
#define RFS_PREFETCH_WINDOW (UINT64_C(1) << 20)
#define RFS_PREFETCH_PAGE UINT64_C(4096)

enum rfs_prefetch_state {
    RFS_WINDOW_FREE,
    RFS_WINDOW_QUEUED, /* no memory yet */
    RFS_WINDOW_READING,
    RFS_WINDOW_READY,
    RFS_WINDOW_FAILED, /* pinned by a thread; without memory */
};

/*
 * Bytes [from, to) of a file: at most RFS_PREFETCH_WINDOW, from and to multiples of
 * RFS_PREFETCH_PAGE but for the file's end.
 */
struct rfs_prefetch_window {
    enum rfs_prefetch_state state;
    uint32_t file;
    uint32_t pins;
    uint64_t order; /* of reading: the least first */
    uint64_t from, to;
    uint64_t wanted;  /* bytes that were requested ahead */
    uint64_t used;    /* bytes that were copied; as many as wanted: it may go */
    uint64_t touched; /* ns: when it was read or used last */
    unsigned char *data;
};

struct rfs_prefetch_wish {
    uint32_t file;
    uint32_t order; /* among the ranges */
    uint64_t from, to;
};
/* By file and place. */
struct rfs_prefetch_wishes {
    struct rfs_prefetch_wish *data; /* owned */
    size_t n;
};
/* False when there is none, or no memory. */
bool rfs_prefetch_wish(const struct rfs_gather_ranges *ranges, struct rfs_prefetch_wishes *wishes);

/* Bytes of the wishes that the window has, or will have. */
uint64_t rfs_prefetch_overlap(const struct rfs_prefetch_window *window,
                              const struct rfs_prefetch_wishes *wishes);

struct rfs_prefetch_plan {
    struct rfs_prefetch_window windows[RFS_PREFETCH_MOST]; /* in the order of need */
    unsigned n;
    bool cut; /* there are more */
};
/*
 * The windows that are missing for the wishes, beside the N that there are. COUNT: what wishes have
 * of those counts as wanted of them.
 */
void rfs_prefetch_plan(struct rfs_prefetch_window *windows, unsigned n,
                       const struct rfs_prefetch_wishes *wishes, bool count,
                       struct rfs_prefetch_plan *out);
