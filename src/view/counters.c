/* SPDX-License-Identifier: Apache-2.0 */
#include "view/counters.h"

#include <time.h>

static void add(atomic_uint_least64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

uint64_t rfs_counters_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The number of binary digits of its microseconds. */
static unsigned bucket_of(uint64_t nanoseconds)
{
    unsigned bucket = 0;
    for (uint64_t left = nanoseconds / 1000; left > 0 && bucket < RESHARD_LATENCIES - 1; left >>= 1)
        bucket++;
    return bucket;
}

void rfs_counters_read(struct rfs_counters *counters, size_t asked, ssize_t n, uint64_t nanoseconds)
{
    add(&counters->asked, asked);
    if (n < 0)
        add(&counters->failed, 1);
    if (n <= 0)
        return;
    add(&counters->reads, 1);
    add(&counters->replied, (uint64_t)n);
    add(&counters->nanoseconds, nanoseconds);
    add(&counters->latency[bucket_of(nanoseconds)], 1);
}

static uint64_t get(const atomic_uint_least64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void rfs_counters_add(const struct rfs_counters *counters, reshard_statistics *sum)
{
    sum->reads += get(&counters->reads);
    sum->bytes_replied += get(&counters->replied);
    sum->bytes_asked += get(&counters->asked);
    sum->reads_failed += get(&counters->failed);
    sum->latency_sum += get(&counters->nanoseconds);
    for (unsigned i = 0; i < RESHARD_LATENCIES; i++)
        sum->latency[i] += get(&counters->latency[i]);
}
