/* SPDX-License-Identifier: Apache-2.0 */
/* A view's own counters; reshard_get_statistics adds those of the other rooms. */
#pragma once

#include "base/std.h"
#include "reshard.h"

#include <stdatomic.h>

/* As in reshard_statistics. Each is right by itself. */
struct rfs_counters {
    atomic_uint_least64_t reads, replied, asked, failed, nanoseconds;
    atomic_uint_least64_t latency[RESHARD_LATENCIES];
};

/* Nanoseconds since some moment. */
uint64_t rfs_counters_clock(void);

/* Counts a call for ASKED bytes that returned N after the given time. Any thread, no lock. */
void rfs_counters_read(struct rfs_counters *counters, size_t asked, ssize_t n,
                       uint64_t nanoseconds);
void rfs_counters_add(const struct rfs_counters *counters, reshard_statistics *sum);
