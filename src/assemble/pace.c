/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/pace.h"

/* No single wait counts for more: it may be one in a thousand. ns. */
#define WAIT_MOST UINT64_C(1000000)
/* From such an average on reads are slow, and below the other fast again. */
#define SLOW UINT64_C(300000)
#define FAST UINT64_C(40000)

/* Reads of a round, for each at once. */
#define ROUND 2
/* Rounds with as many as were found best. */
#define REST 32
/* Twice as many must bring so much more. */
#define REWARD 1.25

bool rfs_pace_note(struct rfs_pace *pace, uint64_t waited)
{
    uint64_t average = atomic_load_explicit(&pace->waited, memory_order_relaxed);

    if (waited == 0 && average == 0)
        return false;
    if (waited > WAIT_MOST)
        waited = WAIT_MOST;
    if (waited >= average)
        average += (waited - average) / 4;
    else
        average -= (average - waited + 3) / 4;
    atomic_store_explicit(&pace->waited, average, memory_order_relaxed);
    if (average > SLOW)
        atomic_store_explicit(&pace->slow, true, memory_order_relaxed);
    return average < FAST && atomic_exchange_explicit(&pace->slow, false, memory_order_relaxed);
}

static void begin_round(struct rfs_depth *depth, uint64_t now)
{
    depth->began = now;
    depth->bytes = 0;
    depth->reads = 0;
}

void rfs_depth_init(struct rfs_depth *depth)
{
    *depth = (struct rfs_depth){.now = RFS_DEPTH_LEAST};
}

void rfs_depth_note(struct rfs_depth *depth, uint64_t bytes, uint64_t now, bool starved)
{
    if (depth->settling > 0) { /* begun when there were fewer, or more */
        depth->settling--;
        begin_round(depth, now);
        return;
    }
    if (depth->began == 0 || starved) {
        begin_round(depth, now);
        return;
    }
    depth->bytes += bytes;
    if (++depth->reads < ROUND * depth->now || now <= depth->began)
        return;
    const double rate = (double)depth->bytes / (double)(now - depth->began);
    begin_round(depth, now);
    if (depth->rest > 0) {
        depth->rest--;
    } else if (depth->before > 0 && rate < depth->before * REWARD) {
        depth->now /= 2;
        depth->before = 0;
        depth->rest = REST;
        depth->settling = depth->now;
    } else if (depth->now < RFS_DEPTH_MOST) {
        depth->before = rate;
        depth->now *= 2;
        depth->settling = depth->now;
    } else {
        depth->rest = REST;
    }
}
