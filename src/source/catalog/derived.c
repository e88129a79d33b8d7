/* SPDX-License-Identifier: Apache-2.0 */
#include "source/catalog/internal.h"

#include "base/cancel.h"
#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

static void free_catalog(struct rfs_catalog **catalog)
{
    rfs_catalog_close(*catalog);
}

/* The lowest rank of a catalogue that has a file. */
static uint32_t lowest_rank(const struct rfs_catalog *catalog)
{
    uint32_t rank = 0;

    while (!rfs_catalog_has(catalog, rank))
        rank++; /* a catalogue has one rank at least */
    return rank;
}

bool rfs_catalog_is_derived(const struct rfs_catalog *catalog)
{
    return catalog->from != NULL;
}

int rfs_catalog_derive(struct rfs_catalog *from, const struct rfs_entry *entries, size_t n,
                       struct rfs_catalog **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_catalog) struct rfs_catalog *catalog = calloc(1, sizeof *catalog);
    size_t first;
    size_t second;

    *out = NULL;
    if (!catalog)
        return rfs_fail_memory(err);
    pthread_mutex_init(&catalog->lock, NULL);
    rfs_cancel_init_cond(&catalog->done);
    catalog->from = from;
    catalog->log = from->log;
    catalog->pool = from->pool;
    catalog->files = from->files;
    catalog->tables = from->tables;
    catalog->extents = from->extents;
    catalog->lengths = from->lengths;
    catalog->opened = from->opened;
    catalog->builder.format = RFS_FORMAT_CKPT; /* entries are in the order of the list */
    catalog->n_ranks = catalog->present = 1;
    catalog->path = strdup(from->path);
    catalog->ranks = calloc(1, sizeof *catalog->ranks);
    catalog->wholes = calloc(1, sizeof *catalog->wholes);
    if (!catalog->path || !catalog->ranks || !catalog->wholes)
        return rfs_fail_memory(err);
    catalog->ranks[0].file = rfs_catalog_file(from, lowest_rank(from));
    catalog->ranks[0].parts = 1;
    catalog->wholes->entries = calloc(n + 1, sizeof *entries);
    if (!catalog->wholes->entries)
        return rfs_fail_memory(err);
    memcpy(catalog->wholes->entries, entries, n * sizeof *entries);
    catalog->wholes->n = n;
    if (rfs_index_order_names(catalog->wholes, &first, &second) < 0)
        return rfs_fail_memory(err);
    catalog->wholes->serial = ++catalog->serials;
    atomic_store(&catalog->indexed, 1);
    atomic_store(&catalog->ranks[0].index, catalog->wholes);
    *out = catalog;
    catalog = NULL;
    return 0;
}
