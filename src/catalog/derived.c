/* SPDX-License-Identifier: Apache-2.0 */
/* Catalogues of whole tensors: of boxes, or derived from another catalogue. */
#include "catalog/internal.h"

#include "base/cancel.h"
#include "base/cleanup.h"

struct rfs_catalog *rfs_catalog_new(struct rfs_log *log, struct rfs_pool *pool)
{
    struct rfs_catalog *catalog = calloc(1, sizeof *catalog);

    if (!catalog)
        return NULL;
    pthread_mutex_init(&catalog->lock, NULL);
    rfs_cancel_init_cond(&catalog->done);
    catalog->log = log;
    catalog->pool = pool;
    return catalog;
}

bool rfs_catalog_set_wholes(struct rfs_catalog *catalog, struct rfs_entry *entries, size_t n)
{
    struct rfs_index *index = catalog->wholes = calloc(1, sizeof *index);
    size_t first;
    size_t second;

    if (!index || !entries) {
        free(entries);
        return false;
    }
    index->entries = entries;
    index->n = n;
    if (rfs_index_order_names(index, &first, &second) < 0)
        return false;
    index->serial = ++catalog->serials;
    atomic_store(&catalog->indexed, 1);
    atomic_store(&catalog->ranks[0].index, index);
    return true;
}

RFS_CLEANUP_OF(free_catalog, struct rfs_catalog *, rfs_catalog_close)

bool rfs_catalog_is_derived(const struct rfs_catalog *catalog)
{
    return catalog->from != NULL;
}

int rfs_catalog_derive(struct rfs_catalog *from, const struct rfs_entry *entries, size_t n,
                       struct rfs_catalog **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_catalog)
    struct rfs_catalog *catalog = rfs_catalog_new(from->log, from->pool);
    struct rfs_entry *copy;

    *out = NULL;
    if (!catalog)
        return rfs_fail_memory(err);
    catalog->from = from;
    catalog->files = from->files;
    catalog->tables = from->tables;
    catalog->extents = from->extents;
    catalog->lengths = from->lengths;
    catalog->opened = from->opened;
    catalog->builder.format = RFS_FORMAT_CKPT; /* entries are in the order of the list */
    catalog->n_ranks = catalog->present = 1;
    catalog->path = strdup(from->path);
    catalog->ranks = calloc(1, sizeof *catalog->ranks);
    if (!catalog->path || !catalog->ranks)
        return rfs_fail_memory(err);
    catalog->ranks[0].file = rfs_catalog_file(from, rfs_catalog_lowest(from));
    catalog->ranks[0].parts = 1;
    copy = calloc(n + 1, sizeof *copy);
    if (copy)
        memcpy(copy, entries, n * sizeof *copy);
    if (!rfs_catalog_set_wholes(catalog, copy, n))
        return rfs_fail_memory(err);
    *out = RFS_STEAL(catalog);
    return 0;
}
