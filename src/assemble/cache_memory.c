/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of pieces: slots, some of them cut, and their share of the budget. */
#include "assemble/cache_internal.h"

bool rfs_cache_cool(struct rfs_cache *cache, struct rfs_cache_later *later)
{
    if (later->n_cool == sizeof later->cool / sizeof later->cool[0])
        return false;
    later->cool[later->n_cool++] = rfs_slots_take_warm(&cache->slots);
    cache->bytes -= RFS_SLOT_BYTES;
    return true;
}

static void leave_mates(struct rfs_cache *cache, const struct rfs_piece *piece)
{
    struct rfs_piece **place = &cache->mates[piece->slot];
    while (*place != piece)
        place = &(*place)->mate;
    *place = piece->mate;
}

/* The memory stays counted: it is that of a warm slot now, or of free units. */
static void give_memory(struct rfs_cache *cache, const struct rfs_piece *piece)
{
    bool whole = piece->units == RFS_SLOT_UNITS;
    if (!whole) {
        leave_mates(cache, piece);
        whole = rfs_slots_give_units(&cache->slots, piece->data, piece->units);
    }
    if (whole)
        rfs_slots_give_warm(&cache->slots, piece->slot);
    cache->bytes += piece->units * RFS_UNIT_BYTES;
}

void rfs_cache_dispose(struct rfs_cache *cache, struct rfs_piece *piece,
                       struct rfs_cache_later *later)
{
    cache->bytes -= piece->charge;
    give_memory(cache, piece);
    piece->chain = later->free;
    later->free = piece;
}

bool rfs_cache_is_counted(const struct rfs_cache *cache, uint32_t units)
{
    return cache->slots.n_warm > 0 || rfs_slots_have_run(&cache->slots, units);
}

bool rfs_cache_make_room(struct rfs_cache *cache, uint32_t units, uint64_t cost,
                         struct rfs_cache_later *later)
{
    if (cost > cache->budget || RFS_SLOT_BYTES > cache->budget - cost)
        return false;
    for (;;) {
        const uint64_t more = cost + (rfs_cache_is_counted(cache, units) ? 0 : RFS_SLOT_BYTES);
        if (cache->bytes <= cache->budget - more)
            return true;
        const uint32_t keep = rfs_slots_have_run(&cache->slots, units) ? 0 : 1;
        if (cache->slots.n_warm > keep) {
            if (!rfs_cache_cool(cache, later))
                return false;
        } else if (!rfs_cache_evict(cache, units, later)) {
            return false;
        }
    }
}

uint32_t rfs_cache_take_slot(struct rfs_cache *cache)
{
    const uint32_t slot = rfs_slots_take_warm(&cache->slots);
    if (slot == RFS_NO_SLOT)
        return rfs_slots_take_cold(&cache->slots);
    cache->bytes -= RFS_SLOT_BYTES;
    return slot;
}

bool rfs_cache_take_memory(struct rfs_cache *cache, struct rfs_piece *piece, uint32_t units)
{
    struct rfs_slots *slots = &cache->slots;
    const uint64_t bytes = units * RFS_UNIT_BYTES;
    piece->units = units;
    piece->data = rfs_slots_take_units(slots, units);
    if (piece->data) {
        cache->bytes -= bytes;
    } else {
        const uint32_t slot = rfs_cache_take_slot(cache);
        if (slot == RFS_NO_SLOT)
            return false;
        piece->data = rfs_slots_data(slots, slot);
        if (units < RFS_SLOT_UNITS) {
            rfs_slots_cut(slots, slot, units);
            cache->mates[slot] = NULL;
            cache->bytes += RFS_SLOT_BYTES - bytes;
        }
    }
    piece->slot = rfs_slots_of(slots, piece->data);
    if (units < RFS_SLOT_UNITS) {
        piece->mate = cache->mates[piece->slot];
        cache->mates[piece->slot] = piece;
    }
    return true;
}
