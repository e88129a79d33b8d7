/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the sources are: whether reads of them wait, and how many reads at once the storage
 * rewards. Nothing here reads a clock: callers pass measured times.
 */
#ifndef RFS_ASSEMBLE_LATENCY_H
#define RFS_ASSEMBLE_LATENCY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Whether reads wait: a moving average of how long. Two of three that waited a ms make the sources
 * slow, and about ten in a row that did not wait make them fast again; one that waits among many
 * that do not changes nothing. {0} to begin with: fast. Any thread; an update that is lost to
 * another one is no harm.
 */
struct rfs_latency {
    _Atomic uint64_t waited; /* ns, the average */
    atomic_bool slow;
};
/* A read waited WAITED ns: 0 if it did not. True when that made it fast. */
bool rfs_latency_note(struct rfs_latency *latency, uint64_t waited);
static inline bool rfs_latency_is_slow(const struct rfs_latency *latency)
{
    return atomic_load_explicit(&latency->slow, memory_order_relaxed);
}

/*
 * How many reads at once: twice as many while that brings at least a quarter more bytes in the same
 * time, and half as many when it did not, until it is tried again. By its owner's lock.
 * rfs_concurrency_init before use.
 *
 * Of object storage it begins with more, as each answer takes a way through a network; from
 * RFS_CONCURRENCY_MOST on those that follow each other become one request, so that there are larger
 * ones rather than more. There a sixth more bytes are worth it: each connection may be limited.
 */
#define RFS_CONCURRENCY_LEAST 8u
#define RFS_CONCURRENCY_MOST 32u
#define RFS_CONCURRENCY_REMOTE 64u
#define RFS_CONCURRENCY_MOST_REMOTE 256u
struct rfs_concurrency {
    bool remote;
    unsigned now;
    unsigned rest;     /* rounds until more are tried again */
    unsigned settling; /* reads that were begun before it changed */
    double before;     /* bytes a ns that half as many brought; 0: not known */
    uint64_t began;    /* ns, of the round */
    uint64_t bytes;    /* read in it */
    unsigned reads;    /* the same */
};
void rfs_concurrency_init(struct rfs_concurrency *concurrency, bool remote);
/* How many reads one request makes, if they follow each other. */
static inline unsigned rfs_concurrency_together(const struct rfs_concurrency *concurrency)
{
    return concurrency->now > RFS_CONCURRENCY_MOST ? concurrency->now / RFS_CONCURRENCY_MOST : 1;
}
/*
 * READS reads of BYTES in all have ended at NOW, of as many at once as there may be. STARVED: there
 * were fewer, because no read was waiting; then the time is ignored, and the round restarts.
 */
void rfs_concurrency_note(struct rfs_concurrency *concurrency, unsigned reads, uint64_t bytes,
                          uint64_t now, bool starved);

#endif
