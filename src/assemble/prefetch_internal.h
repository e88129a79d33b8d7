/* SPDX-License-Identifier: Apache-2.0 */
/* Between prefetch.c and prefetch_read.c only. */
#pragma once

#include "assemble/prefetch.h"

#include <pthread.h>

struct rfs_prefetch {
    struct rfs_files *files;
    struct rfs_cache *cache;
    struct rfs_pool *pool;
    unsigned room; /* for so many windows; 0: nothing is read ahead */
    struct rfs_latency latency;
    pthread_mutex_t lock;   /* of the rest; a leaf lock */
    pthread_cond_t changed; /* a window was read, or a runner ended */
    struct rfs_concurrency concurrency;
    struct rfs_prefetch_window windows[RFS_PREFETCH_MOST];
    uint64_t order;   /* of the next window to be added */
    unsigned runners; /* pool jobs that read windows */
    unsigned reading; /* windows that are being read */
    bool stopped;
    uint64_t reads;
    unsigned at_once;
};

/* Memory that is given back when the lock is released. */
struct rfs_prefetch_later {
    void *room[RFS_PREFETCH_MOST];
    unsigned n;
};

void rfs_prefetch_unlock(struct rfs_prefetch *prefetch, struct rfs_prefetch_later *later);
/* Frees the window, which is not pinned. The caller has the lock. */
void rfs_prefetch_retire(struct rfs_prefetch_window *window, struct rfs_prefetch_later *later);
/* Reads a queued window. The caller has the lock, which is released meanwhile. */
void rfs_prefetch_read(struct rfs_prefetch *prefetch, struct rfs_prefetch_window *window,
                       struct rfs_wait *wait);
/* Starts as many jobs as there may be and as have something to read. */
void rfs_prefetch_start(struct rfs_prefetch *prefetch);
