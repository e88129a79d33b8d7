/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of a view, and their sum with those of the rooms below. */
#include "view/statistics.h"

#include "base/cleanup.h"
#include "store/encrypted.h"
#include "view/internal.h"

static void add(atomic_uint_least64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* Returns the number of binary digits of a latency in microseconds. */
static unsigned bucket_of(uint64_t nanoseconds)
{
    unsigned bucket = 0;
    for (uint64_t left = nanoseconds / 1000; left > 0 && bucket < RESHARD_LATENCIES - 1; left >>= 1)
        bucket++;
    return bucket;
}

void rfs_view_count_read(struct rfs_view_counters *counters, size_t asked, ssize_t n,
                         uint64_t nanoseconds)
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

static void add_counters(const struct rfs_view_counters *counters, reshard_statistics *sum)
{
    sum->reads += get(&counters->reads);
    sum->bytes_replied += get(&counters->replied);
    sum->bytes_asked += get(&counters->asked);
    sum->reads_failed += get(&counters->failed);
    sum->latency_sum += get(&counters->nanoseconds);
    for (unsigned i = 0; i < RESHARD_LATENCIES; i++)
        sum->latency[i] += get(&counters->latency[i]);
}

/* Adds the compressed items of a view. */
static void add_items(const struct rfs_view *view, reshard_statistics *sum)
{
    struct rfs_blocks *items = rfs_files_packed(rfs_catalog_files(view->catalog));
    struct rfs_blocks_counters blocks;

    if (!items)
        return;
    rfs_blocks_count(items, &blocks);
    sum->cache_budget += blocks.budget;
    sum->cache_bytes += blocks.bytes;
}

void rfs_view_add_statistics(const struct rfs_view *view, reshard_statistics *sum)
{
    struct rfs_files_counters files;
    struct rfs_catalog_counters catalog;
    struct rfs_assembler_counters assembler;

    rfs_files_count(rfs_catalog_files(view->catalog), &files);
    rfs_catalog_count(view->source, &catalog);
    rfs_assembler_count(view->assembler, &assembler);
    add_counters(&view->save.counters, sum);
    sum->source_reads += files.reads;
    sum->source_bytes += files.bytes;
    sum->source_opens += files.opens;
    sum->source_errors += files.errors;
    sum->ranks_indexed += catalog.indexed;
    sum->ranks_predicted += catalog.predicted;
    sum->index_bytes += catalog.index_bytes;
    sum->cache_budget += assembler.budget;
    sum->cache_bytes += assembler.cache.bytes;
    sum->cache_hits += assembler.cache.hits;
    sum->cache_misses += assembler.cache.misses;
    sum->cache_evictions += assembler.cache.evictions;
    sum->cache_inserts += assembler.cache.inserts;
    sum->cache_regrets += assembler.cache.regrets;
    sum->read_ahead_pieces += assembler.ahead;
    sum->read_ahead_unread += assembler.cache.unread;
    add_items(view, sum);
}

/* Returns how many plain views were freed, and sets *PAST to their counters, unless it is NULL. */
static uint64_t get_past(reshard_view *set, reshard_statistics *past)
{
    RFS_LOCKED(&set->lock);
    if (past)
        *past = set->past;
    return set->freed;
}

void reshard_get_statistics(reshard_view *set, reshard_statistics *out)
{
    reshard_statistics full;
    struct rfs_view *view;
    uint64_t freed;

    do { /* one that is freed meanwhile would be missing, or count twice */
        freed = get_past(set, &full);
        for (size_t at = 0; (view = rfs_view_next(set, &at)); rfs_view_leave(view))
            rfs_view_add_statistics(view, &full);
    } while (get_past(set, NULL) != freed);
    if (set->follow) /* they share it */
        full.cache_budget = set->options.cache;
    if (set->encrypted) {
        struct rfs_blocks_counters blocks;
        rfs_blocks_count(rfs_encrypted_blocks(set->encrypted), &blocks);
        full.cache_budget += blocks.budget;
        full.cache_bytes += blocks.bytes;
        full.decrypted_blocks += blocks.made;
    }
    rfs_view_give(out, &full, sizeof full);
}
