/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropping indexes to make room. One is dropped only if it was not requested since the oldest
 * current use began: uses that requested it before have ended.
 *
 * rfs_catalog_ready takes no lock. It marks the rank as used and then loads the rank's index.
 * Dropping makes the index absent and then loads the mark; indexes marked since the oldest use
 * began are put back. Each side stores its own before it loads the other's, all in one order
 * (memory_order_seq_cst), so at least one of the two sees the other: the reader finds no index, or
 * the index stays. That needs marks that never fall. A thread may be held up between its look at
 * the count of uses and its mark, while a later use marks the rank: so a mark is only ever raised.
 */
#include "catalog/internal.h"

#include "base/order.h"

void rfs_catalog_begin(struct rfs_catalog *catalog, struct rfs_use *use)
{
    pthread_mutex_lock(&catalog->lock);
    *use = (struct rfs_use){atomic_fetch_add(&catalog->uses, 1) + 1, catalog->last, NULL};
    if (use->before)
        use->before->after = use;
    else
        catalog->first = use;
    catalog->last = use;
    pthread_mutex_unlock(&catalog->lock);
}

void rfs_catalog_mark(const struct rfs_catalog *catalog, struct catalog_rank *rank)
{
    const uint64_t uses = atomic_load(&catalog->uses);
    uint64_t used = atomic_load(&rank->used);

    if (catalog->marking)
        catalog->marking(catalog->marking_ctx);
    while (used < uses && !atomic_compare_exchange_weak(&rank->used, &used, uses))
        continue;
}

RFS_COMPARE(by_use, struct rfs_built *, x, y, RFS_ORDER((*x)->used, (*y)->used))

/* Chooses the indexes to drop among those requested before OLDEST. Returns whether there is any. */
static bool choose(struct rfs_catalog *catalog, uint64_t oldest, uint64_t bytes)
{
    const uint64_t enough = catalog->most - catalog->most / 4; /* not to be back here at once */
    bool any = false;

    for (size_t i = 0; i < catalog->owned.n; i++) {
        catalog->owned.data[i]->used = 0;
        catalog->owned.data[i]->dropped = false;
    }
    for (uint32_t r = 0; r < catalog->n_ranks; r++) {
        struct rfs_built *built = catalog->ranks[r].built;
        const uint64_t used = atomic_load(&catalog->ranks[r].used);
        if (built && built->used < used)
            built->used = used;
    }
    RFS_SORT_ALL(&catalog->owned, by_use);
    for (size_t i = 0; i < catalog->owned.n && bytes > enough; i++) {
        struct rfs_built *built = catalog->owned.data[i];
        const uint64_t less = rfs_built_memory(built);
        if (built->used >= oldest)
            break;
        built->dropped = true;
        any = true;
        bytes -= less < bytes ? less : bytes;
    }
    return any;
}

static void make_absent(struct rfs_catalog *catalog, uint64_t oldest)
{
    for (uint32_t r = 0; r < catalog->n_ranks; r++)
        if (catalog->ranks[r].built && catalog->ranks[r].built->dropped)
            atomic_store(&catalog->ranks[r].index, NULL);
    for (uint32_t r = 0; r < catalog->n_ranks; r++)
        if (catalog->ranks[r].built && atomic_load(&catalog->ranks[r].used) >= oldest)
            catalog->ranks[r].built->dropped = false;
    for (uint32_t r = 0; r < catalog->n_ranks; r++) {
        struct catalog_rank *rank = &catalog->ranks[r];
        if (rank->built && rank->built->dropped)
            rank->built = NULL;
        else if (rank->built)
            atomic_store(&rank->index, rank->built->index);
    }
}

static void make_room(struct rfs_catalog *catalog)
{
    const uint64_t oldest = catalog->first ? catalog->first->since : UINT64_MAX;
    size_t kept = 0;

    if (!choose(catalog, oldest, atomic_load(&catalog->index_bytes)))
        return;
    make_absent(catalog, oldest);
    for (size_t i = 0; i < catalog->owned.n; i++) {
        struct rfs_built *built = catalog->owned.data[i];
        if (!built->dropped) {
            catalog->owned.data[kept++] = built;
            continue;
        }
        if (built->from != RFS_NO_ID)
            catalog->from_saved[built->from] = NULL;
        atomic_fetch_sub(&catalog->index_bytes, rfs_built_free(built));
        atomic_fetch_add(&catalog->dropped, 1);
    }
    catalog->owned.n = kept;
}

void rfs_catalog_end(struct rfs_catalog *catalog, struct rfs_use *use)
{
    pthread_mutex_lock(&catalog->lock);
    if (use->before)
        use->before->after = use->after;
    else
        catalog->first = use->after;
    if (use->after)
        use->after->before = use->before;
    else
        catalog->last = use->before;
    if (catalog->most > 0 && atomic_load(&catalog->index_bytes) > catalog->most)
        make_room(catalog);
    pthread_mutex_unlock(&catalog->lock);
}
