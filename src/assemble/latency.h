/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the sources are: whether reads of them wait, and how many reads at once the storage
 * rewards. Nothing here reads a clock: callers pass measured times.
 */
#pragma once

#include "base/std.h"

#include <stdatomic.h>

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
 * Of object storage, reads that follow each other are one request, of up to
 * RFS_CONCURRENCY_TOGETHER; at most RFS_CONCURRENCY_REQUESTS are under way. It begins with as many
 * reads as keep a network of 10 Gbit/s busy, given the time until answers begin. Then a sixth more
 * bytes are worth twice as many reads. But the time that a request takes, divided by the time until
 * answers begin, decides sooner:
 *   below 1.1   a request only waits: twice as many reads at once
 *   from 7 on   the network is always busy: more reads cannot bring a sixth more bytes, so there are
 *               fewer requests, and larger ones
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
    unsigned requests; /* that make as many, each of reads that follow each other */
    bool busy;         /* the network is */
    bool expected;     /* NOW was set by the first answer */
    unsigned rest;     /* rounds until more are tried again */
    unsigned settling; /* reads that were begun before it changed */
    double before;     /* bytes a ns that half as many brought; 0: not known */
    uint64_t began;    /* ns, of the round */
    uint64_t bytes;    /* read in it */
    unsigned reads;    /* the same */
    uint64_t taken;    /* ns, by all reads since these times were last compared */
    unsigned timed;    /* the number of those */
};
/* There is ROOM for so many reads. */
void rfs_concurrency_init(struct rfs_concurrency *concurrency, bool remote, unsigned room);
/* How many reads one request makes, if they follow each other. */
static inline unsigned rfs_concurrency_together(const struct rfs_concurrency *concurrency)
{
    return (concurrency->now + concurrency->requests - 1) / concurrency->requests;
}

/* Reads of one request have ended. */
struct rfs_concurrency_end {
    unsigned reads;
    uint64_t bytes;
    uint64_t now;        /* ns */
    uint64_t took;       /* ns */
    uint64_t round_trip; /* ns, until answers begin; 0: not known */
    /*
     * There were fewer reads than there may be, because no read was waiting. Then the rate is
     * ignored, and the round restarts.
     */
    bool starved;
};
void rfs_concurrency_note(struct rfs_concurrency *concurrency,
                          const struct rfs_concurrency_end *end);
