/* SPDX-License-Identifier: Apache-2.0 */
/* The cache's policy, which cache.h explains. */
#include "assemble/cache_internal.h"

#include "base/checked.h"

/*
 * A piece that was requested this often is protected even if it was not read to its end: by small
 * reads all over.
 */
#define HITS_PROTECT 64

/* Of the pieces that are not made ahead for want of room, one in so many is. */
#define STALE_AHEAD 16

/* ---- segments -------------------------------------------------------------------------------- */

void rfs_segment_add(struct rfs_cache *cache, struct rfs_piece *piece, enum rfs_segment segment)
{
    struct rfs_lru *lru = &cache->segments[segment];
    piece->segment = segment;
    piece->newer = NULL;
    piece->older = lru->newest;
    *(lru->newest ? &lru->newest->newer : &lru->oldest) = piece;
    lru->newest = piece;
    lru->bytes += piece->charge;
}

static void leave(struct rfs_cache *cache, struct rfs_piece *piece)
{
    struct rfs_lru *lru = &cache->segments[piece->segment];
    *(piece->newer ? &piece->newer->older : &lru->newest) = piece->older;
    *(piece->older ? &piece->older->newer : &lru->oldest) = piece->newer;
    lru->bytes -= piece->charge;
}

static void move(struct rfs_cache *cache, struct rfs_piece *piece, enum rfs_segment segment)
{
    leave(cache, piece);
    rfs_segment_add(cache, piece, segment);
}

void rfs_piece_set_unread(struct rfs_cache *cache, struct rfs_piece *piece, bool unread)
{
    if (piece->units < RFS_SLOT_UNITS && piece->unread != unread) {
        uint8_t *in = &cache->unread_in[piece->slot];
        cache->unread_slots -= *in > 0;
        *in = (uint8_t)(*in + (unread ? 1 : -1));
        cache->unread_slots += *in > 0;
    }
    piece->unread = unread;
}

void rfs_segment_hit(struct rfs_cache *cache, struct rfs_piece *piece)
{
    cache->hits += !piece->passing;
    rfs_piece_set_unread(cache, piece, false);
    piece->used = cache->clock;
    const bool protect =
        piece->segment != RFS_SEGMENT_PENDING || (!piece->passing && ++piece->hits >= HITS_PROTECT);
    move(cache, piece, protect ? RFS_SEGMENT_PROTECTED : RFS_SEGMENT_PENDING);
}

void rfs_segment_rest(struct rfs_cache *cache, struct rfs_piece *piece)
{
    if (piece->segment != RFS_SEGMENT_PENDING || !atomic_load(&piece->read_through))
        return;
    if (piece->passing) {
        rfs_cache_forget(cache, piece, 0);
        return;
    }
    cache->clock += piece->charge;
    piece->used = cache->clock;
    move(cache, piece, piece->returned ? RFS_SEGMENT_PROTECTED : RFS_SEGMENT_PROBATION);
}

void rfs_cache_forget(struct rfs_cache *cache, struct rfs_piece *piece, int rc)
{
    rfs_cache_remove(cache, piece);
    if (piece->state == RFS_PIECE_READY) {
        leave(cache, piece);
        cache->unread += piece->unread;
    }
    rfs_piece_set_unread(cache, piece, false);
    piece->state = RFS_PIECE_GONE;
    piece->rc = rc;
}

/* ---- how much each may take ------------------------------------------------------------------ */

/*
 * The least that the probation segment may take, even if the protected one would take all: for
 * readers a little later.
 */
static uint64_t probation_share(const struct rfs_cache *cache)
{
    return rfs_min_u64(cache->probation_room, cache->budget / 2);
}

static bool is_over_share(const struct rfs_cache *cache)
{
    return cache->segments[RFS_SEGMENT_PROBATION].bytes > probation_share(cache);
}

/* Pieces that wait for their readers take more than a quarter of the budget. */
static bool is_crowded(const struct rfs_cache *cache)
{
    return cache->segments[RFS_SEGMENT_PENDING].bytes > cache->budget / 4;
}

/*
 * The same for slots that are cut into short pieces: one unread piece keeps its whole slot from
 * other uses.
 */
static bool is_cut_up(const struct rfs_cache *cache)
{
    return (uint64_t)cache->unread_slots * RFS_SLOT_BYTES > cache->budget / 4;
}

/*
 * Readers ahead of each other must not evict pieces that the others wait for: they would be made
 * twice. But those may never be read, so one in STALE_AHEAD does push.
 */
bool rfs_cache_has_room_ahead(struct rfs_cache *cache)
{
    const uint64_t warm = (uint64_t)cache->slots.n_warm * RFS_SLOT_BYTES;
    const bool full = cache->bytes - warm + RFS_SLOT_BYTES + RFS_PIECE_COST > cache->budget;

    if (!full || !is_crowded(cache) || is_over_share(cache))
        return true;
    return ++cache->refused % STALE_AHEAD == 0;
}

/*
 * With twice the room that the piece would have taken, the next ones are there when they are asked
 * for again. It is to be protected while there is room; and then in the place of the protected
 * piece that was not asked for the longest, if that is longer. So a part of repeatedly read data
 * that is larger than the budget stays, where by last use alone each piece would go just before it
 * is requested.
 */
bool rfs_cache_return(struct rfs_cache *cache, uint64_t away, uint64_t charge)
{
    const struct rfs_lru *protected = &cache->segments[RFS_SEGMENT_PROTECTED];
    const bool protect = !protected->oldest ||
                         protected->bytes + charge <= cache->budget - probation_share(cache) ||
                         away < cache->clock - protected->oldest->used;

    if (away <= cache->budget / 2)
        cache->probation_room = rfs_max_u64(cache->probation_room, 2 * away + charge);
    return protect;
}

/* ---- eviction -------------------------------------------------------------------------------- */

/* A piece that is ready and not pinned. */
static void evict(struct rfs_cache *cache, struct rfs_piece *piece, struct rfs_cache_later *later)
{
    if (piece->segment != RFS_SEGMENT_PENDING)
        rfs_ghost_leave(cache, piece);
    rfs_cache_forget(cache, piece, 0);
    rfs_cache_dispose(cache, piece, later);
    cache->evictions++;
}

static bool evict_from(struct rfs_cache *cache, enum rfs_segment segment,
                       struct rfs_cache_later *later)
{
    struct rfs_piece *piece = cache->segments[segment].oldest;
    while (piece && piece->pins > 0)
        piece = piece->newer;
    if (piece)
        evict(cache, piece, later);
    return piece;
}

/*
 * Pieces that wait for their readers go last, unless readers that never came left a quarter of the
 * budget.
 */
static bool evict_one(struct rfs_cache *cache, struct rfs_cache_later *later)
{
    const bool crowded = is_crowded(cache);

    return (is_over_share(cache) && evict_from(cache, RFS_SEGMENT_PROBATION, later)) ||
           (crowded && evict_from(cache, RFS_SEGMENT_PENDING, later)) ||
           evict_from(cache, RFS_SEGMENT_PROTECTED, later) ||
           evict_from(cache, RFS_SEGMENT_PROBATION, later) ||
           evict_from(cache, RFS_SEGMENT_PENDING, later);
}

void rfs_cache_bound(struct rfs_cache *cache, uint64_t charge, struct rfs_cache_later *later)
{
    while (cache->segments[RFS_SEGMENT_PROBATION].bytes + charge > cache->probation_room &&
           evict_from(cache, RFS_SEGMENT_PROBATION, later)) {
        /* The room shrinks while evicted pieces are not requested again. */
        const uint64_t less = rfs_min_u64(charge / 8, cache->probation_room);
        cache->probation_room = rfs_max_u64(RFS_PROBATION_BYTES, cache->probation_room - less);
    }
    /* Two at a time, as making room may need to cool some, too. */
    while (cache->slots.n_warm > cache->warm_most + cache->rooms && later->n_cool < 2 &&
           rfs_cache_cool(cache, later))
        continue;
}

/*
 * Evicts one, and if that was in a slot that is cut, what else is there as far as it is in the way.
 * So room is made by one slot at a time, where the oldest pieces of all slots would go for a single
 * run of units. What was made ahead and still waits for its reader stays, as long as neither such
 * pieces nor the slots in which they are take a quarter of the budget: with one of 16 KiB in each
 * slot, all that was beside them would go, and there would be no slot.
 */
bool rfs_cache_evict(struct rfs_cache *cache, uint32_t units, struct rfs_cache_later *later)
{
    if (!evict_one(cache, later))
        return false;
    const struct rfs_piece *gone = later->free;
    struct rfs_piece *mate = gone->units < RFS_SLOT_UNITS ? cache->mates[gone->slot] : NULL;
    while (mate && !rfs_cache_is_counted(cache, units)) {
        struct rfs_piece *next = mate->mate;
        const bool waits = mate->unread && !is_crowded(cache) && !is_cut_up(cache);
        if (mate->state == RFS_PIECE_READY && mate->pins == 0 && !waits)
            evict(cache, mate, later);
        mate = next;
    }
    return true;
}
