/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads ahead of slow sources: windows of source files of up to a MiB, which several threads read
 * at once before gathering asks for them. Up to eight windows of an object that follow each other
 * are one request. The ranges of source files that a reader will need are noted (gather.h); ranges
 * of a file that lie near each other become one request, whichever parameters and pieces they are
 * for.
 *
 * Whether sources are slow is measured. While they are fast, only this measurement is done here;
 * object storage is slow until it is found not to be. How many reads are under way at once follows
 * the storage, between 8 and 32 (of objects 64 and 256, in at most 64 requests); waiting threads of
 * the pool make them.
 *
 * A window that cannot be read is dropped: the thread that needs it reads the range itself, and
 * only its failure counts. Windows hold the bytes of the files at the time of reading; gathering
 * compares the files' identities around its use of them, as it does around its own reads.
 *
 * Encrypted sources are not read ahead here: their unit is the encrypted block (store/encrypted.h).
 * Nor are those with compressed items, whose unit is the item (store/packed.h).
 *
 * Memory: windows take room from the cache's budget, at most three quarters of it. Of files, 84 MiB
 * are read ahead, in at most 192 windows, so that those of many sources, which are small, are read
 * while others are used; of objects, 512 windows. A window is freed when all its requested bytes
 * have been used. When others need the room, a window goes if each of its bytes was used once, or
 * none for a second. Nothing takes the room of another window: what a thread needs is read source
 * by source where there is no room for the windows of all sources, so that each byte is read once
 * however small the budget is.
 *
 * Threads: all functions but new and free. One lock, a leaf lock; not held across I/O or copying. A
 * thread that holds windows waits for reads that are under way, without holding a descriptor; reads
 * that have not begun it makes itself. A thread that holds none waits while others hold them all.
 */
#pragma once

#include "assemble/cache.h"
#include "assemble/gather.h"
#include "base/pool.h"

#include <stdatomic.h>

#define RFS_PREFETCH_WINDOW (UINT64_C(1) << 20)
#define RFS_PREFETCH_PAGE UINT64_C(4096)

struct rfs_prefetch;

/*
 * Borrows everything; the pool (NULL: nothing is read ahead) lasts until rfs_prefetch_stop. REMOTE:
 * files are objects. Returns NULL when out of memory.
 */
struct rfs_prefetch *rfs_prefetch_new(struct rfs_files *files, bool remote, struct rfs_cache *cache,
                                      uint64_t budget, struct rfs_pool *pool);
/* Drops reads that have not begun, and stops reading ahead. Does not wait. */
void rfs_prefetch_stop(struct rfs_prefetch *prefetch);
/* Stops it, waits for reads under way, and frees it. Nothing may be held. NULL is fine. */
void rfs_prefetch_free(struct rfs_prefetch *prefetch);

/* Says whether sources are slow, and are read ahead. */
bool rfs_prefetch_is_slow(const struct rfs_prefetch *prefetch);
/*
 * Returns how many bytes are worth reading ahead of a reader in sequence: 0 while sources are fast.
 */
uint64_t rfs_prefetch_reach(struct rfs_prefetch *prefetch);

/*
 * Queues reads of the ranges, in their order. Returns false, and queues nothing, if there is no
 * room for all of them beside others; ranges that never have room are left out.
 */
bool rfs_prefetch_want(struct rfs_prefetch *prefetch, const struct rfs_gather_ranges *ranges);
/*
 * Announces that bytes [begin, end) of the slice are about to be fetched, by one or more calls:
 * what slow sources have of them, or of the first of them that have room, is read at once and
 * before all that is read ahead.
 */
void rfs_prefetch_soon(struct rfs_prefetch *prefetch, const struct rfs_slice *slice, uint64_t begin,
                       uint64_t end);
/*
 * Reads bytes [begin, end) of the slice from its sources into DST, with SCRATCH as rfs_gather has
 * it. AHEAD: no request depends on them yet, so a failed read does not count as a failure of its
 * file. 0 or -errno; the bytes are valid only when 0, and PROOF is as for rfs_gather.
 */
int rfs_prefetch_fetch(struct rfs_prefetch *prefetch, const struct rfs_slice *slice, uint64_t begin,
                       uint64_t end, unsigned char *scratch, unsigned char *dst,
                       enum rfs_gather_proof proof, bool ahead);

struct rfs_prefetch_counters {
    uint64_t reads;   /* requests that were answered */
    unsigned at_once; /* most windows that were read at the same time */
    unsigned windows; /* windows that there are now */
};
/* For tests alone. */
void rfs_prefetch_count(struct rfs_prefetch *prefetch, struct rfs_prefetch_counters *out);

/* ---- how fast sources are: nothing here reads a clock, callers pass measured times ----------- */

/*
 * Measures whether reads of sources wait: a moving average of how long. Two of three that waited
 * a ms make the sources slow, and about ten in a row that did not wait make them fast again; one
 * that waits among many that do not changes nothing. Begins with {0}: fast. Any thread; an update
 * that is lost to another one is no harm.
 */
struct rfs_latency {
    _Atomic uint64_t waited; /* average, ns */
    atomic_bool slow;
};
/*
 * Notes that a read waited WAITED ns, or 0 if it did not. Returns true when that made it fast.
 * Other files than prefetch.c call it for tests alone, as those of struct rfs_concurrency.
 */
bool rfs_latency_note(struct rfs_latency *latency, uint64_t waited);
static inline bool rfs_latency_is_slow(const struct rfs_latency *latency)
{
    return atomic_load_explicit(&latency->slow, memory_order_relaxed);
}

/*
 * Finds how many reads to make at once: twice as many while that brings at least a quarter more
 * bytes in the same time, and half as many when it did not, until it is tried again. Its owner
 * locks.
 *
 * Reads of an object that follow each other are one request, of up to RFS_CONCURRENCY_TOGETHER; at
 * most RFS_CONCURRENCY_REQUESTS are under way. It begins with as many reads as keep a network of 10
 * Gbit/s busy, given the time until answers begin. Then a sixth more bytes are worth twice as many
 * reads. But the time that a request takes, divided by the time until answers begin, decides
 * sooner:
 *   below 1.1   a request only waits: twice as many reads at once
 *   from 7 on   the network is always busy: more reads cannot bring a sixth more bytes, so there
 *               are fewer requests, and larger ones
 *   below 4     there may be as many requests as before
 */
#define RFS_CONCURRENCY_LEAST 8u
#define RFS_CONCURRENCY_MOST 32u
#define RFS_CONCURRENCY_REMOTE 64u
#define RFS_CONCURRENCY_MOST_REMOTE 256u
#define RFS_CONCURRENCY_REQUESTS 64u
#define RFS_CONCURRENCY_FEWEST 16u
#define RFS_CONCURRENCY_TOGETHER 8u
struct rfs_concurrency {
    bool remote;
    unsigned most, now;
    unsigned requests; /* requests that make NOW reads, each of reads that follow each other */
    bool busy;         /* the network is always busy */
    bool expected;     /* NOW was set by the first answer */
    unsigned rest;     /* rounds until more are tried again */
    unsigned settling; /* reads that were begun before it changed */
    double before;     /* bytes a ns that half as many brought; 0: not known */
    uint64_t began;    /* time when the round began, ns */
    uint64_t bytes;    /* bytes read in the round */
    unsigned reads;    /* reads that ended in the round */
    uint64_t taken;    /* ns of all reads since these times were last compared */
    unsigned timed;    /* number of these reads */
};
/* Sets it before use. ROOM: reads that there is memory for. */
void rfs_concurrency_init(struct rfs_concurrency *concurrency, bool remote, unsigned room);
/* Returns how many reads one request makes, if they follow each other. */
static inline unsigned rfs_concurrency_together(const struct rfs_concurrency *concurrency)
{
    return (concurrency->now + concurrency->requests - 1) / concurrency->requests;
}

/* The end of a request. */
struct rfs_concurrency_end {
    unsigned reads;
    uint64_t bytes;
    uint64_t now;        /* ns */
    uint64_t took;       /* ns */
    uint64_t round_trip; /* ns until answers begin; 0: not known */
    /*
     * There were fewer reads than there may be, because no read was waiting. Then the rate is
     * ignored, and the round restarts.
     */
    bool starved;
};
/* Notes that a request has ended. */
void rfs_concurrency_note(struct rfs_concurrency *concurrency,
                          const struct rfs_concurrency_end *end);
