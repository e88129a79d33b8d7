/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/cache.h"

#include "base/cancel.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

/* With so many units or more a piece takes a whole slot. */
#define WHOLE_LEAST (RFS_SLOT_UNITS / 4 * 3)
/* What malloc and the table take for a piece beyond its struct. */
#define PIECE_COST (sizeof(struct rfs_piece) + 64)

/* Asked for this often, a piece is proven even if nobody read it to its end: by small reads all over. */
#define HITS_PROVE 64

/* Of the pieces that are not made ahead for want of room, one in so many is. */
#define STALE_AHEAD 16

/* More warm slots than are soon used again go back to the system. */
#define WARM_MOST 16

/* Slots of the table that remembers pieces that went; one for each of as many MiB. */
#define GHOSTS 16384

/* A piece that went; a newer one takes the place of an older. */
struct ghost {
    uint64_t hash; /* of its key; 0: none */
    uint64_t used; /* when it was last asked for, by the cache's clock */
};

/* Pieces that are ready, by last use. */
struct lru {
    struct rfs_piece *newest, *oldest;
    uint64_t bytes; /* their charges */
};

struct rfs_cache {
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t done;  /* a piece stopped being filled */
    uint64_t budget;
    uint64_t
        bytes; /* charges of all pieces that are not freed, warm slots, and free units of cut ones */
    struct rfs_piece **table;
    size_t table_size; /* a power of two */
    size_t n;          /* pieces in the table */
    struct lru lists[RFS_LIST_COUNT];
    struct ghost *ghosts; /* [GHOSTS], by hash */
    uint64_t clock;       /* charges of all pieces that were ever read to their end */
    uint64_t spent_room;  /* what those that are spent may take */
    uint32_t refused;     /* pieces that were not made ahead, for want of room */
    struct rfs_slots slots;
    struct rfs_piece **mates; /* [total slots] pieces of a slot that is cut; of others undefined */
    uint64_t hits, misses, evictions, inserts, regrets, unread;
};

/* Work that a call found under the lock and does when it is released. */
struct later {
    struct rfs_piece *free; /* by chain */
    uint32_t n_cool;
    uint32_t cool[4];
};

struct rfs_cache *rfs_cache_new(uint64_t budget)
{
    struct rfs_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    cache->table_size = 64;
    cache->table = calloc(cache->table_size, sizeof(struct rfs_piece *));
    cache->ghosts = calloc(GHOSTS, sizeof *cache->ghosts);
    if (!cache->table || !cache->ghosts) {
        free(cache->table);
        free(cache->ghosts);
        free(cache);
        return NULL;
    }
    cache->budget = budget;
    cache->spent_room = RFS_SPENT_BYTES;
    pthread_mutex_init(&cache->lock, NULL);
    rfs_cancel_init_cond(&cache->done);
    rfs_slots_init(&cache->slots, budget);
    cache->mates = malloc((cache->slots.total + UINT64_C(1)) * sizeof(struct rfs_piece *));
    if (!cache->mates) {
        rfs_cache_free(cache);
        return NULL;
    }
    if (cache->slots.total < budget / RFS_SLOT_BYTES) /* no more can be reserved */
        cache->budget = (cache->slots.total + UINT64_C(1)) * RFS_SLOT_BYTES - 1;
    return cache;
}

void rfs_cache_keep_secret(struct rfs_cache *cache, struct rfs_secret *secret)
{
    cache->slots.secret = secret;
}

static void free_piece(struct rfs_piece *piece)
{
    free(piece->files);
    free(piece);
}

void rfs_cache_free(struct rfs_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < cache->table_size; i++) {
        while (cache->table[i]) {
            struct rfs_piece *piece = cache->table[i];
            cache->table[i] = piece->chain;
            if (cache->slots.secret)
                rfs_wipe(piece->data, piece->size);
            free_piece(piece);
        }
    }
    free(cache->table);
    free(cache->ghosts);
    free(cache->mates);
    rfs_slots_destroy(&cache->slots);
    pthread_cond_destroy(&cache->done);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

/* Ids are hashes already; consecutive numbers take consecutive places. */
static struct rfs_piece **place_of(struct rfs_cache *cache, const struct rfs_piece_key *key)
{
    return &cache->table[(key->id[0] + key->number) & (cache->table_size - 1)];
}

static bool same_key(const struct rfs_piece_key *a, const struct rfs_piece_key *b)
{
    return a->id[0] == b->id[0] && a->id[1] == b->id[1] && a->number == b->number;
}

static struct rfs_piece *find(struct rfs_cache *cache, const struct rfs_piece_key *key)
{
    struct rfs_piece *piece = *place_of(cache, key);
    while (piece && !same_key(&piece->key, key))
        piece = piece->chain;
    return piece;
}

/* A table that can't grow only gets slower. */
static void grow_table(struct rfs_cache *cache)
{
    struct rfs_piece **old = cache->table;
    const size_t old_size = cache->table_size;
    struct rfs_piece **table = calloc(old_size * 2, sizeof(struct rfs_piece *));
    if (!table)
        return;
    cache->table = table;
    cache->table_size = old_size * 2;
    for (size_t i = 0; i < old_size; i++) {
        while (old[i]) {
            struct rfs_piece *piece = old[i];
            old[i] = piece->chain;
            struct rfs_piece **place = place_of(cache, &piece->key);
            piece->chain = *place;
            *place = piece;
        }
    }
    free(old);
}

static void insert(struct rfs_cache *cache, struct rfs_piece *piece)
{
    if (cache->n >= cache->table_size)
        grow_table(cache);
    struct rfs_piece **place = place_of(cache, &piece->key);
    piece->chain = *place;
    *place = piece;
    cache->n++;
}

static void list_add(struct rfs_cache *cache, struct rfs_piece *piece, enum rfs_piece_list list)
{
    struct lru *lru = &cache->lists[list];
    piece->list = list;
    piece->newer = NULL;
    piece->older = lru->newest;
    *(lru->newest ? &lru->newest->newer : &lru->oldest) = piece;
    lru->newest = piece;
    lru->bytes += piece->charge;
}

static void list_remove(struct rfs_cache *cache, struct rfs_piece *piece)
{
    struct lru *lru = &cache->lists[piece->list];
    *(piece->newer ? &piece->newer->older : &lru->newest) = piece->older;
    *(piece->older ? &piece->older->newer : &lru->oldest) = piece->newer;
    lru->bytes -= piece->charge;
}

static void list_move(struct rfs_cache *cache, struct rfs_piece *piece, enum rfs_piece_list list)
{
    list_remove(cache, piece);
    list_add(cache, piece, list);
}

/* Never 0. Ids are hashes already. */
static uint64_t hash_of(const struct rfs_piece_key *key)
{
    return (key->id[0] ^ (key->number * UINT64_C(0x9e3779b97f4a7c15))) | 1;
}

/* NULL for a piece that was not here, or went too long ago. */
static const struct ghost *find_ghost(const struct rfs_cache *cache,
                                      const struct rfs_piece_key *key)
{
    const uint64_t hash = hash_of(key);
    const struct ghost *ghost = &cache->ghosts[hash / 2 % GHOSTS];
    return ghost->hash == hash ? ghost : NULL;
}

static void leave_ghost(struct rfs_cache *cache, const struct rfs_piece *piece)
{
    const uint64_t hash = hash_of(&piece->key);
    cache->ghosts[hash / 2 % GHOSTS] = (struct ghost){hash, piece->used};
}

/* Out of the table and of the list. */
static void forget(struct rfs_cache *cache, struct rfs_piece *piece, int rc)
{
    struct rfs_piece **place = place_of(cache, &piece->key);
    while (*place != piece)
        place = &(*place)->chain;
    *place = piece->chain;
    cache->n--;
    if (piece->state == RFS_PIECE_READY) {
        list_remove(cache, piece);
        cache->unread += piece->unread;
    }
    piece->state = RFS_PIECE_GONE;
    piece->rc = rc;
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

/* A forgotten piece that nobody holds: its memory, in the end. */
static void dispose(struct rfs_cache *cache, struct rfs_piece *piece, struct later *later)
{
    cache->bytes -= piece->charge;
    give_memory(cache, piece);
    piece->chain = later->free;
    later->free = piece;
}

static void unpin_locked(struct rfs_cache *cache, struct rfs_piece *piece, struct later *later)
{
    if (--piece->pins > 0)
        return;
    if (piece->state == RFS_PIECE_READY && piece->list == RFS_LIST_NEW &&
        atomic_load(&piece->spent)) {
        if (piece->passing) {
            forget(cache, piece, 0);
        } else {
            cache->clock += piece->charge;
            piece->used = cache->clock;
            list_move(cache, piece, piece->again ? RFS_LIST_PROVEN : RFS_LIST_SPENT);
        }
    }
    if (piece->state == RFS_PIECE_GONE)
        dispose(cache, piece, later);
}

/* Releases the lock and does what was left for then. */
static void unlock(struct rfs_cache *cache, struct later *later)
{
    pthread_mutex_unlock(&cache->lock);
    while (later->free) {
        struct rfs_piece *piece = later->free;
        later->free = piece->chain;
        free_piece(piece);
    }
    if (later->n_cool == 0)
        return;
    for (uint32_t i = 0; i < later->n_cool; i++)
        rfs_slots_cool(&cache->slots, later->cool[i]);
    pthread_mutex_lock(&cache->lock);
    while (later->n_cool > 0)
        rfs_slots_give_cold(&cache->slots, later->cool[--later->n_cool]);
    pthread_mutex_unlock(&cache->lock);
}

/* A piece that is ready and not pinned. */
static void evict(struct rfs_cache *cache, struct rfs_piece *piece, struct later *later)
{
    if (piece->list != RFS_LIST_NEW)
        leave_ghost(cache, piece);
    forget(cache, piece, 0);
    dispose(cache, piece, later);
    cache->evictions++;
}

static bool evict_from(struct rfs_cache *cache, enum rfs_piece_list list, struct later *later)
{
    struct rfs_piece *piece = cache->lists[list].oldest;
    while (piece && piece->pins > 0)
        piece = piece->newer;
    if (piece)
        evict(cache, piece, later);
    return piece;
}

/* What spent pieces may take even if proven ones would take all: those that others read a little later. */
static uint64_t spent_share(const struct rfs_cache *cache)
{
    return rfs_min_u64(cache->spent_room, cache->budget / 2);
}

/* What waits for its readers takes more than a quarter of the budget. */
static bool is_crowded(const struct rfs_cache *cache)
{
    return cache->lists[RFS_LIST_NEW].bytes > cache->budget / 4;
}

static bool has_many_spent(const struct rfs_cache *cache)
{
    return cache->lists[RFS_LIST_SPENT].bytes > spent_share(cache);
}

/*
 * Whether there is room to make a piece ahead. Readers ahead of each other must not push out what the others wait
 * for: it would be made twice. But it may be that nobody comes for that, so one in STALE_AHEAD does push.
 */
static bool has_room_ahead(struct rfs_cache *cache)
{
    const uint64_t warm = (uint64_t)cache->slots.n_warm * RFS_SLOT_BYTES;
    const bool full = cache->bytes - warm + RFS_SLOT_BYTES + PIECE_COST > cache->budget;

    if (!full || !is_crowded(cache) || has_many_spent(cache))
        return true;
    return ++cache->refused % STALE_AHEAD == 0;
}

/* What waits for its reader goes last, unless readers that never came left a quarter of the budget. */
static bool evict_one(struct rfs_cache *cache, struct later *later)
{
    const bool crowded = is_crowded(cache);

    return (has_many_spent(cache) && evict_from(cache, RFS_LIST_SPENT, later)) ||
           (crowded && evict_from(cache, RFS_LIST_NEW, later)) ||
           evict_from(cache, RFS_LIST_PROVEN, later) || evict_from(cache, RFS_LIST_SPENT, later) ||
           evict_from(cache, RFS_LIST_NEW, later);
}

/*
 * A piece that went is asked for again, after AWAY bytes. Whether it is to stay, once it is spent: while there is
 * room; and then in the place of the proven piece that was not asked for the longest, if that is longer. So of
 * what is larger than the budget, read over and over, a part stays, where by last use alone each piece would go
 * just before it is wanted.
 */
static bool comes_to_stay(const struct rfs_cache *cache, uint64_t away, uint64_t charge)
{
    const struct lru *proven = &cache->lists[RFS_LIST_PROVEN];
    return !proven->oldest || proven->bytes + charge <= cache->budget - spent_share(cache) ||
           away < cache->clock - proven->oldest->used;
}

/* With twice the room that it would have taken, the next ones are there when they are asked for again. */
static void widen_spent(struct rfs_cache *cache, uint64_t away, uint64_t charge)
{
    if (away <= cache->budget / 2)
        cache->spent_room = rfs_max_u64(cache->spent_room, 2 * away + charge);
}

static bool cool_one(struct rfs_cache *cache, struct later *later)
{
    if (later->n_cool == sizeof later->cool / sizeof later->cool[0])
        return false;
    later->cool[later->n_cool++] = rfs_slots_take_warm(&cache->slots);
    cache->bytes -= RFS_SLOT_BYTES;
    return true;
}

/* Keeps what spent pieces take within their room, which gets less while nobody asks for them again. */
static void bound_spent(struct rfs_cache *cache, uint64_t charge, struct later *later)
{
    while (cache->lists[RFS_LIST_SPENT].bytes + charge > cache->spent_room &&
           evict_from(cache, RFS_LIST_SPENT, later)) {
        const uint64_t less = rfs_min_u64(charge / 8, cache->spent_room);
        cache->spent_room = rfs_max_u64(RFS_SPENT_BYTES, cache->spent_room - less);
    }
    /* Two at a time, as making room may need to cool some, too. */
    while (cache->slots.n_warm > WARM_MOST && later->n_cool < 2 && cool_one(cache, later))
        continue;
}

/* Whether UNITS can be had of memory that is counted already. */
static bool is_counted(const struct rfs_cache *cache, uint32_t units)
{
    return cache->slots.n_warm > 0 || rfs_slots_have_run(&cache->slots, units);
}

/*
 * Evicts one, and if that was in a slot that is cut, what else is there as far as it is in the way. So room is made by
 * one slot at a time, where the oldest pieces of all slots would go for a single run of units.
 */
static bool evict_for(struct rfs_cache *cache, uint32_t units, struct later *later)
{
    if (!evict_one(cache, later))
        return false;
    const struct rfs_piece *gone = later->free;
    struct rfs_piece *mate = gone->units < RFS_SLOT_UNITS ? cache->mates[gone->slot] : NULL;
    while (mate && !is_counted(cache, units)) {
        struct rfs_piece *next = mate->mate;
        if (mate->state == RFS_PIECE_READY && mate->pins == 0)
            evict(cache, mate, later);
        mate = next;
    }
    return true;
}

/* Makes room in the budget for UNITS, which may be counted already, and for COST. */
static bool make_room(struct rfs_cache *cache, uint32_t units, uint64_t cost, struct later *later)
{
    if (cost > cache->budget || RFS_SLOT_BYTES > cache->budget - cost)
        return false;
    for (;;) {
        const uint64_t more = cost + (is_counted(cache, units) ? 0 : RFS_SLOT_BYTES);
        if (cache->bytes <= cache->budget - more)
            return true;
        const uint32_t keep = rfs_slots_have_run(&cache->slots, units) ? 0 : 1;
        if (cache->slots.n_warm > keep) {
            if (!cool_one(cache, later))
                return false;
        } else if (!evict_for(cache, units, later)) {
            return false;
        }
    }
}

static uint32_t take_slot(struct rfs_cache *cache)
{
    const uint32_t slot = rfs_slots_take_warm(&cache->slots);
    if (slot == RFS_NO_SLOT)
        return rfs_slots_take_cold(&cache->slots);
    cache->bytes -= RFS_SLOT_BYTES;
    return slot;
}

/* Memory for the piece, which is to be charged: of a slot that is cut if there is some, else of one that is not yet. */
static bool take_memory(struct rfs_cache *cache, struct rfs_piece *piece, uint32_t units)
{
    struct rfs_slots *slots = &cache->slots;
    const uint64_t bytes = units * RFS_UNIT_BYTES;
    piece->units = units;
    piece->data = rfs_slots_take_units(slots, units);
    if (piece->data) {
        cache->bytes -= bytes;
    } else {
        const uint32_t slot = take_slot(cache);
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

/* What is secret is guarded by slots. */
static uint32_t units_for(const struct rfs_cache *cache, size_t size)
{
    const size_t units = (size + RFS_UNIT_BYTES - 1) / RFS_UNIT_BYTES;
    return cache->slots.secret || units >= WHOLE_LEAST ? RFS_SLOT_UNITS : (uint32_t)units;
}

/* A piece to be filled, in the table and pinned; NULL when there is no room. */
static struct rfs_piece *claim(struct rfs_cache *cache, const struct rfs_piece_key *key,
                               size_t size, size_t max_files, struct later *later)
{
    if (size > RFS_SLOT_BYTES || (cache->slots.secret && size < RFS_SECRET_LEAST))
        return NULL;
    const uint32_t units = units_for(cache, size);
    const uint64_t cost = PIECE_COST + max_files * sizeof(uint32_t);
    const uint64_t charge = units * RFS_UNIT_BYTES + cost;
    const struct ghost *ghost = find_ghost(cache, key);
    const uint64_t away = ghost ? cache->clock - ghost->used : 0;
    const bool again = ghost && comes_to_stay(cache, away, charge);
    if (ghost)
        widen_spent(cache, away, charge);
    bound_spent(cache, charge, later); /* the memory of one that goes is warm */
    if (!make_room(cache, units, cost, later))
        return NULL;
    struct rfs_piece *piece = calloc(1, sizeof *piece);
    uint32_t *files = malloc((max_files > 0 ? max_files : 1) * sizeof *files);
    if (!piece || !files || !take_memory(cache, piece, units)) {
        free(piece);
        free(files);
        return NULL;
    }
    piece->key = *key;
    piece->pins = 1;
    piece->files = files;
    piece->size = size;
    piece->charge = charge;
    piece->again = again;
    piece->used = cache->clock;
    cache->bytes += charge;
    insert(cache, piece);
    return piece;
}

/* Waits until a piece found in the table is no longer being filled. An rfs_cache_got or -errno. */
static int await(struct rfs_cache *cache, struct rfs_piece *piece, struct later *later)
{
    int waited = 0;
    piece->pins++;
    while (piece->state == RFS_PIECE_FILLING && waited == 0)
        waited = rfs_cancel_wait(&cache->done, &cache->lock);
    if (piece->state != RFS_PIECE_READY) {
        const int rc = waited < 0 ? waited : piece->rc;
        unpin_locked(cache, piece, later);
        return rc < 0 ? rc : RFS_GOT_NOTHING;
    }
    cache->hits += !piece->passing;
    piece->unread = false;
    const bool proven =
        piece->list != RFS_LIST_NEW || (!piece->passing && ++piece->hits >= HITS_PROVE);
    piece->used = cache->clock;
    list_move(cache, piece, proven ? RFS_LIST_PROVEN : RFS_LIST_NEW);
    return RFS_GOT_PIECE;
}

int rfs_cache_get(struct rfs_cache *cache, const struct rfs_piece_key *key, size_t size,
                  size_t max_files, enum rfs_cache_want want, struct rfs_piece **out)
{
    struct later later = {0};
    int got = RFS_GOT_NOTHING;
    pthread_mutex_lock(&cache->lock);
    struct rfs_piece *piece = find(cache, key);
    if (piece && want != RFS_WANT_ABSENT) {
        got = await(cache, piece, &later);
    } else if (!piece) {
        const bool missed = want == RFS_WANT_FOUND || want == RFS_WANT_MADE;
        cache->misses += missed;
        cache->regrets += missed && find_ghost(cache, key);
        if (want == RFS_WANT_MADE || (want == RFS_WANT_ABSENT && has_room_ahead(cache)))
            piece = claim(cache, key, size, max_files, &later);
        if (piece)
            piece->unread = want == RFS_WANT_ABSENT;
        got = piece ? RFS_GOT_CLAIM : RFS_GOT_NOTHING;
    }
    unlock(cache, &later);
    if (got == RFS_GOT_CLAIM)
        rfs_slots_guard(&cache->slots, piece->slot);
    *out = got > RFS_GOT_NOTHING ? piece : NULL;
    return got;
}

void rfs_cache_publish(struct rfs_cache *cache, struct rfs_piece *piece, int rc)
{
    struct later later = {0};
    pthread_mutex_lock(&cache->lock);
    if (rc == 0) {
        piece->state = RFS_PIECE_READY;
        cache->inserts++;
        list_add(cache, piece, RFS_LIST_NEW);
    } else {
        forget(cache, piece, rc);
        unpin_locked(cache, piece, &later);
    }
    pthread_cond_broadcast(&cache->done);
    unlock(cache, &later);
}

void rfs_cache_unpin(struct rfs_cache *cache, struct rfs_piece *piece)
{
    struct later later = {0};
    pthread_mutex_lock(&cache->lock);
    unpin_locked(cache, piece, &later);
    unlock(cache, &later);
}

void rfs_cache_drop(struct rfs_cache *cache, struct rfs_piece *piece)
{
    pthread_mutex_lock(&cache->lock);
    if (piece->state == RFS_PIECE_READY)
        forget(cache, piece, 0);
    pthread_mutex_unlock(&cache->lock);
}

void *rfs_cache_take_room(struct rfs_cache *cache)
{
    struct later later = {0};
    uint32_t slot = RFS_NO_SLOT;
    pthread_mutex_lock(&cache->lock);
    if (cache->slots.total > 0 && make_room(cache, RFS_SLOT_UNITS, 0, &later))
        slot = take_slot(cache);
    if (slot != RFS_NO_SLOT)
        cache->bytes += RFS_SLOT_BYTES;
    unlock(cache, &later);
    if (slot == RFS_NO_SLOT)
        return NULL;
    rfs_slots_guard(&cache->slots, slot);
    return rfs_slots_data(&cache->slots, slot);
}

void rfs_cache_give_room(struct rfs_cache *cache, void *room)
{
    pthread_mutex_lock(&cache->lock);
    rfs_slots_give_warm(&cache->slots, rfs_slots_of(&cache->slots, room)); /* counted as before */
    pthread_mutex_unlock(&cache->lock);
}

void rfs_cache_count(struct rfs_cache *cache, struct rfs_cache_counters *out)
{
    pthread_mutex_lock(&cache->lock);
    *out = (struct rfs_cache_counters){
        .bytes = cache->bytes,
        .hits = cache->hits,
        .misses = cache->misses,
        .evictions = cache->evictions,
        .inserts = cache->inserts,
        .regrets = cache->regrets,
        .unread = cache->unread,
    };
    pthread_mutex_unlock(&cache->lock);
}
