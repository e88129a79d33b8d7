/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of a view and of the rooms below. */
#include "store/blocks.h"
#include "store/encrypted.h"
#include "view/internal.h"

static void add_statistics(const struct rfs_view *view, reshard_statistics *sum)
{
    struct rfs_files_counters files;
    struct rfs_catalog_counters catalog;
    struct rfs_assembler_counters assembler;

    rfs_files_count(rfs_catalog_files(view->catalog), &files);
    rfs_catalog_count(view->stored, &catalog);
    rfs_assembler_count(view->assembler, &assembler);
    rfs_counters_add(&view->counters, sum);
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
}

void reshard_get_statistics(reshard_view *set, reshard_statistics *out)
{
    reshard_statistics full = {0};

    for (size_t i = 0; i < set->n; i++)
        add_statistics(set->data[i], &full);
    if (set->encrypted) {
        struct rfs_blocks_counters blocks;
        rfs_blocks_count(rfs_encrypted_blocks(set->encrypted), &blocks);
        full.cache_budget += blocks.budget;
        full.cache_bytes += blocks.bytes;
        full.decrypted_blocks += blocks.made;
    }
    rfs_view_give(out, &full, sizeof full);
}
