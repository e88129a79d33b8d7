/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading ahead of slow sources: windows of source files of up to a MiB, which are read by several
 * threads at once before gathering asks for them. Of object storage up to eight that follow each
 * other are one request (latency.h). The ranges of source files that a reader will need are noted
 * (gather.h); ranges of a file that lie near each other become one request, whichever parameters
 * and pieces they are for.
 *
 * Whether sources are slow is measured (latency.h). While they are fast, only this measurement is
 * done here; object storage is slow until it is found not to be. How many reads are under way at
 * once follows the storage, between 8 and 32 (of objects 64 and 256, in at most 64 requests);
 * waiting threads of the pool make them.
 *
 * A window that cannot be read is dropped: the thread that needs it reads the range itself, and
 * only its failure counts. Windows hold the bytes of the files at the time of reading; gathering
 * compares the files' identities around its use of them, as it does around its own reads.
 *
 * Encrypted sources are not read ahead here: their unit is the encrypted block
 * (store/blocks.h).
 *
 * Memory: windows take room from the cache's budget, at most three quarters of it and 96 MiB (512
 * MiB of objects). A window is freed when all its requested bytes have been used, or when it was
 * not used for a second and others need the room.
 *
 * Threads: all functions but new and free. One lock, a leaf lock; not held across I/O or copying. A
 * thread that holds windows waits for reads that are under way, without holding a descriptor; reads
 * that have not begun it makes itself.
 */
#pragma once

#include "assemble/cache.h"
#include "assemble/gather.h"
#include "assemble/latency.h"
#include "assemble/prefetch_plan.h"
#include "base/pool.h"
#include "base/wait.h"

struct rfs_prefetch;

/*
 * All borrowed; the pool (NULL: nothing is read ahead) lasts until rfs_prefetch_stop. REMOTE: files
 * are objects. NULL when out of memory.
 */
struct rfs_prefetch *rfs_prefetch_new(struct rfs_files *files, bool remote, struct rfs_cache *cache,
                                      uint64_t budget, struct rfs_pool *pool);
/* Drops reads that have not begun, and stops reading ahead. Does not wait. */
void rfs_prefetch_stop(struct rfs_prefetch *prefetch);
/* Stopped, or its pool freed; nothing is held. Waits for reads under way. NULL is fine. */
void rfs_prefetch_free(struct rfs_prefetch *prefetch);

/*
 * Around a read of sources of SIZE bytes that is not of a window: how long it waited. {0} to begin
 * with, each thread its own.
 */
void rfs_prefetch_watch(struct rfs_prefetch *prefetch, struct rfs_wait *wait, uint64_t size);

bool rfs_prefetch_is_slow(const struct rfs_prefetch *prefetch);
/* How many bytes are worth reading ahead of a reader in sequence: 0 while sources are fast. */
uint64_t rfs_prefetch_reach(struct rfs_prefetch *prefetch);

/*
 * Queues reads of the ranges, in their order; those without room are left out. NOW: the caller is
 * about to hold them; they come before reads ahead, and are left to the caller where one request
 * reads them.
 */
void rfs_prefetch_want(struct rfs_prefetch *prefetch, const struct rfs_gather_ranges *ranges,
                       bool now);

/* Windows that a thread copies from. */
struct rfs_prefetch_hold {
    struct rfs_held parts[RFS_PREFETCH_MOST];
    size_t n;
    bool partly; /* there was no room for all: fewer ranges at once would be held whole */
    uint16_t windows[RFS_PREFETCH_MOST]; /* each, also those that were not read */
    uint64_t bytes[RFS_PREFETCH_MOST];   /* of each, which are wanted here */
    size_t n_windows;
};

/*
 * Holds the windows of the ranges, after waiting for reads that are under way. Missing windows are
 * read first, all at once, if that takes several requests. Ranges that one request reads anyway are
 * left to the caller. Release must follow.
 */
void rfs_prefetch_hold(struct rfs_prefetch *prefetch, const struct rfs_gather_ranges *ranges,
                       struct rfs_prefetch_hold *hold);
void rfs_prefetch_release(struct rfs_prefetch *prefetch, const struct rfs_prefetch_hold *hold);

struct rfs_prefetch_counters {
    uint64_t reads;   /* windows that were read */
    unsigned at_once; /* the most of them at the same time */
    unsigned windows; /* there now */
};
void rfs_prefetch_count(struct rfs_prefetch *prefetch, struct rfs_prefetch_counters *out);
