/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of a view; reshard_get_statistics adds those of the other rooms. */
#pragma once

#include "base/std.h"
#include "reshard.h"

#include <stdatomic.h>

/* The members of reshard_statistics that reads change. Each is right by itself. */
struct rfs_view_counters {
    atomic_uint_least64_t reads, replied, asked, failed, nanoseconds;
    atomic_uint_least64_t latency[RESHARD_LATENCIES];
};

/*
 * Counts a call for ASKED bytes that returned N after the given time. Any thread; takes no lock.
 */
void rfs_view_count_read(struct rfs_view_counters *counters, size_t asked, ssize_t n,
                         uint64_t nanoseconds);

struct rfs_view;
/* Adds the counts of a plain view. */
void rfs_view_add_statistics(const struct rfs_view *view, reshard_statistics *sum);
