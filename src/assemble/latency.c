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
/* The same before more objects are tried, as they take memory that a short reading never repays. */
#define REST_FIRST 4
/* Twice as many must bring so much more. */
#define REWARD 1.25
#define REWARD_REMOTE 1.17
/* Times the round trip, as latency.h has them. */
#define IDLE 1.1
#define NOT_BUSY 4
#define BUSY 7
/* Bytes a ns: twice what 10 Gbit/s are, so that the network is busy while some wait. */
#define EXPECTED_RATE 2.5
#define EXPECTED_READ 1048576

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

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

void rfs_concurrency_init(struct rfs_concurrency *concurrency, bool remote, unsigned room)
{
    *concurrency = (struct rfs_concurrency){
        .remote = remote,
        .most = least(remote ? RFS_CONCURRENCY_MOST_REMOTE : RFS_CONCURRENCY_MOST, room),
        .now = least(remote ? RFS_CONCURRENCY_REMOTE : RFS_CONCURRENCY_LEAST, room),
        .rest = remote ? REST_FIRST : 0,
        .requests = remote ? RFS_CONCURRENCY_REQUESTS : RFS_CONCURRENCY_MOST,
    };
}

/* RATE is that with half as many, if there are more now; else 0. */
static void change(struct rfs_concurrency *concurrency, unsigned now, double rate)
{
    concurrency->now = now;
    concurrency->before = rate;
    concurrency->settling = now;
}

/* The first answer has come: sets the number of reads that such a network probably needs. */
static void expect(struct rfs_concurrency *concurrency, uint64_t round_trip)
{
    const double bytes = EXPECTED_RATE * (double)round_trip;
    unsigned now = concurrency->now;

    while (now < concurrency->most && now * EXPECTED_READ < bytes)
        now = least(2 * now, concurrency->most);
    concurrency->expected = true;
    if (now != concurrency->now)
        change(concurrency, now, 0);
}

/* Compares how long reads take with the time that all have to wait. */
static void heed_waits(struct rfs_concurrency *concurrency, const struct rfs_concurrency_end *end)
{
    const double wait = (double)end->round_trip;

    /* The time of fewer reads does not count, unless the network was busy with these. */
    if (end->starved && (double)end->took < BUSY * wait)
        return;
    concurrency->taken += end->took * end->reads;
    concurrency->timed += end->reads;
    if (concurrency->timed < concurrency->now) /* those that end first are the short ones */
        return;
    const double times = (double)concurrency->taken / concurrency->timed / wait;
    concurrency->taken = concurrency->timed = 0;
    concurrency->busy = times >= BUSY;
    if (concurrency->busy && concurrency->requests > RFS_CONCURRENCY_FEWEST &&
        2 * rfs_concurrency_together(concurrency) <= RFS_CONCURRENCY_TOGETHER)
        concurrency->requests /= 2;
    else if (times < NOT_BUSY)
        concurrency->requests = RFS_CONCURRENCY_REQUESTS;
    if (times < IDLE && concurrency->now < concurrency->most)
        change(concurrency, least(2 * concurrency->now, concurrency->most), 0);
}

void rfs_concurrency_note(struct rfs_concurrency *concurrency,
                          const struct rfs_concurrency_end *end)
{
    const double reward = concurrency->remote ? REWARD_REMOTE : REWARD;

    if (concurrency->settling > 0) { /* begun when there were fewer, or more */
        concurrency->settling -= least(end->reads, concurrency->settling);
        begin_round(concurrency, end->now);
        return;
    }
    if (end->round_trip > 0 && !concurrency->expected)
        expect(concurrency, end->round_trip);
    else if (end->round_trip > 0)
        heed_waits(concurrency, end);
    if (concurrency->began == 0 || end->starved || concurrency->settling > 0) {
        begin_round(concurrency, end->now);
        return;
    }
    concurrency->bytes += end->bytes;
    concurrency->reads += end->reads;
    if (concurrency->reads < ROUND * concurrency->now || end->now <= concurrency->began)
        return;
    const double rate = (double)concurrency->bytes / (double)(end->now - concurrency->began);
    begin_round(concurrency, end->now);
    if (concurrency->rest > 0) {
        concurrency->rest--;
    } else if (concurrency->before > 0 && rate < concurrency->before * reward) {
        change(concurrency, concurrency->now / 2, 0);
        concurrency->rest = REST;
    } else if (concurrency->now < concurrency->most && !concurrency->busy) {
        change(concurrency, least(2 * concurrency->now, concurrency->most), rate);
    } else {
        concurrency->rest = REST;
    }
}
