/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/latency.h"

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
#define REWARD_REMOTE 1.17

bool rfs_latency_note(struct rfs_latency *latency, uint64_t waited)
{
    uint64_t average = atomic_load_explicit(&latency->waited, memory_order_relaxed);

    if (waited == 0 && average == 0)
        return false;
    if (waited > WAIT_MOST)
        waited = WAIT_MOST;
    if (waited >= average)
        average += (waited - average) / 4;
    else
        average -= (average - waited + 3) / 4;
    atomic_store_explicit(&latency->waited, average, memory_order_relaxed);
    if (average > SLOW)
        atomic_store_explicit(&latency->slow, true, memory_order_relaxed);
    return average < FAST && atomic_exchange_explicit(&latency->slow, false, memory_order_relaxed);
}

static void begin_round(struct rfs_concurrency *concurrency, uint64_t now)
{
    concurrency->began = now;
    concurrency->bytes = 0;
    concurrency->reads = 0;
}

void rfs_concurrency_init(struct rfs_concurrency *concurrency, bool remote)
{
    *concurrency = (struct rfs_concurrency){
        .remote = remote, .now = remote ? RFS_CONCURRENCY_REMOTE : RFS_CONCURRENCY_LEAST};
}

void rfs_concurrency_note(struct rfs_concurrency *concurrency, unsigned reads, uint64_t bytes,
                          uint64_t now, bool starved)
{
    const unsigned most = concurrency->remote ? RFS_CONCURRENCY_MOST_REMOTE : RFS_CONCURRENCY_MOST;
    const double reward = concurrency->remote ? REWARD_REMOTE : REWARD;

    if (concurrency->settling > 0) { /* begun when there were fewer, or more */
        concurrency->settling -= reads < concurrency->settling ? reads : concurrency->settling;
        begin_round(concurrency, now);
        return;
    }
    if (concurrency->began == 0 || starved) {
        begin_round(concurrency, now);
        return;
    }
    concurrency->bytes += bytes;
    concurrency->reads += reads;
    if (concurrency->reads < ROUND * concurrency->now || now <= concurrency->began)
        return;
    const double rate = (double)concurrency->bytes / (double)(now - concurrency->began);
    begin_round(concurrency, now);
    if (concurrency->rest > 0) {
        concurrency->rest--;
    } else if (concurrency->before > 0 && rate < concurrency->before * reward) {
        concurrency->now /= 2;
        concurrency->before = 0;
        concurrency->rest = REST;
        concurrency->settling = concurrency->now;
    } else if (concurrency->now < most) {
        concurrency->before = rate;
        concurrency->now *= 2;
        concurrency->settling = concurrency->now;
    } else {
        concurrency->rest = REST;
    }
}
