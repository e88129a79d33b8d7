/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds pieces by key, gives them memory, and decides which of them stay. The cache's lock guards
 * all of it. Only a slot that one thread has to itself needs no lock.
 */
#include "assemble/cache.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/limits.h"

#include <pthread.h>
#include <sys/mman.h>

/* ---- slots: memory for whole pieces ---------------------------------------------------------- */

/*
 * Divides one range of addresses, reserved once, into slots of RFS_CACHE_SLOT_BYTES. The kernel
 * backs it by huge pages where it may, which makes fresh memory several times cheaper, and a slot
 * that is used again costs nothing. Where slots hold secret data, their memory is guarded, and
 * wiped before it is given back.
 *
 * A free slot is warm (it holds memory) or cold. A slot that was taken may be cut into units of
 * UNIT_BYTES, for shorter pieces; it is whole again when all of them are given back. So pieces of
 * any size, in any order, never take more memory than the range. Only slots_cool and slots_guard
 * may be called without the lock, on a slot that was taken.
 */
#define NO_SLOT UINT32_MAX
#define SLOT_UNITS 64u
#define UNIT_BYTES (RFS_CACHE_SLOT_BYTES / SLOT_UNITS)

/* The state of a slot that is cut. */
struct cut {
    uint64_t used; /* units in use, a bit each */
    uint32_t next,
        prev; /* list of slots with an equally long longest free run of units; NO_SLOT: none */
};

struct slots {
    void *mapping;
    size_t mapping_bytes;
    unsigned char *base;
    uint32_t total;
    uint32_t fresh; /* number of the first slot that was never used */
    uint32_t n_warm, n_cold;
    uint32_t *warm, *cold;       /* stacks with room for all slots */
    struct cut *cuts;            /* [total] */
    uint32_t by_run[SLOT_UNITS]; /* first slot for each length of the longest free run of units */
    uint64_t runs;               /* lengths for which by_run has a slot, a bit each */
    /* borrowed; NULL: the bytes in slots are not secret; set before the first slot is taken */
    struct rfs_secret *secret;
};

static unsigned char *slots_data(const struct slots *slots, uint32_t slot)
{
    return slots->base + (size_t)slot * RFS_CACHE_SLOT_BYTES;
}

/* Returns the number of the slot that DATA lies in. */
static uint32_t slots_of(const struct slots *slots, const void *data)
{
    return (uint32_t)((size_t)((const unsigned char *)data - slots->base) / RFS_CACHE_SLOT_BYTES);
}

#define HUGE_PAGE ((size_t)2 << 20)

/* If fewer slots cannot be reserved, half as many are not tried. */
#define RESERVE_LEAST 16

/*
 * Reserves addresses for *TOTAL slots, or for half as many, and so on, where a limit of the process
 * leaves no more.
 */
static void *reserve(uint64_t *total, size_t *bytes)
{
    for (;; *total /= 2) {
        *bytes = (size_t)*total * RFS_CACHE_SLOT_BYTES + HUGE_PAGE;
        void *mapping = mmap(NULL, *bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping != MAP_FAILED)
            return mapping;
        if (*total < RESERVE_LEAST)
            return NULL;
    }
}

/* Reserves as many slots as BYTES hold, or as the system will reserve addresses for. */
static void slots_init(struct slots *slots, uint64_t bytes)
{
    *slots = (struct slots){0};
    for (uint32_t run = 0; run < SLOT_UNITS; run++)
        slots->by_run[run] = NO_SLOT;
    /* Threads need addresses as well, where these are limited. */
    uint64_t total = rfs_min_u64(bytes, rfs_limits_addresses() / 4) / RFS_CACHE_SLOT_BYTES;
    if (total == 0 || total >= NO_SLOT || total > (SIZE_MAX - HUGE_PAGE) / RFS_CACHE_SLOT_BYTES)
        return;
    size_t mapping_bytes;
    void *mapping = reserve(&total, &mapping_bytes);
    if (!mapping)
        return;
    uint32_t *stacks = malloc((size_t)total * 2 * sizeof *stacks);
    struct cut *cuts = malloc((size_t)total * sizeof *cuts);
    if (!stacks || !cuts) {
        munmap(mapping, mapping_bytes);
        free(stacks);
        free(cuts);
        return;
    }
    /* Both are advice. A core dump is for our own state, not for the checkpoint's content. */
    madvise(mapping, mapping_bytes, MADV_HUGEPAGE);
    madvise(mapping, mapping_bytes, MADV_DONTDUMP);
    slots->mapping = mapping;
    slots->mapping_bytes = mapping_bytes;
    slots->base = (unsigned char *)mapping + (HUGE_PAGE - (uintptr_t)mapping % HUGE_PAGE);
    slots->total = (uint32_t)total;
    slots->warm = stacks;
    slots->cold = stacks + total;
    slots->cuts = cuts;
}

/* Frees the range; no slot may be in use. */
static void slots_destroy(struct slots *slots)
{
    while (slots->secret && slots->n_warm > 0)
        rfs_secret_wipe(slots_data(slots, slots->warm[--slots->n_warm]), RFS_CACHE_SLOT_BYTES);
    if (slots->mapping)
        munmap(slots->mapping, slots->mapping_bytes);
    free(slots->warm);
    free(slots->cuts);
    *slots = (struct slots){0};
}

/* Takes a free slot, whose bytes are undefined, or returns NO_SLOT. */
static uint32_t slots_take_warm(struct slots *slots)
{
    return slots->n_warm > 0 ? slots->warm[--slots->n_warm] : NO_SLOT;
}

static uint32_t slots_take_cold(struct slots *slots)
{
    if (slots->n_cold > 0)
        return slots->cold[--slots->n_cold];
    return slots->fresh < slots->total ? slots->fresh++ : NO_SLOT;
}

/* Makes a slot that was taken free again: warm as it is, cold after slots_cool. */
static void slots_give_warm(struct slots *slots, uint32_t slot)
{
    slots->warm[slots->n_warm++] = slot;
}

static void slots_give_cold(struct slots *slots, uint32_t slot)
{
    slots->cold[slots->n_cold++] = slot;
}

/* Finds where in FREE a run of N units begins, as bits. */
static uint64_t beginnings(uint64_t free, uint32_t n)
{
    for (uint32_t done = 1; done < n && free; done++)
        free &= free >> 1;
    return free;
}

static uint32_t longest_run(uint64_t free)
{
    uint32_t n = 0;
    for (; free; free &= free >> 1)
        n++;
    return n;
}

static void list_cut(struct slots *slots, uint32_t slot)
{
    struct cut *cut = &slots->cuts[slot];
    const uint32_t run = longest_run(~cut->used);
    const uint32_t next = slots->by_run[run];
    cut->next = next;
    cut->prev = NO_SLOT;
    if (next != NO_SLOT)
        slots->cuts[next].prev = slot;
    slots->by_run[run] = slot;
    slots->runs |= UINT64_C(1) << run;
}

static void unlist_cut(struct slots *slots, uint32_t slot)
{
    const struct cut *cut = &slots->cuts[slot];
    const uint32_t run = longest_run(~cut->used);
    if (cut->next != NO_SLOT)
        slots->cuts[cut->next].prev = cut->prev;
    if (cut->prev != NO_SLOT)
        slots->cuts[cut->prev].next = cut->next;
    else
        slots->by_run[run] = cut->next;
    if (slots->by_run[run] == NO_SLOT)
        slots->runs &= ~(UINT64_C(1) << run);
}

/* Returns the bits of N units from FIRST on; N is less than SLOT_UNITS. */
static uint64_t bits(uint32_t first, uint32_t n)
{
    return ((UINT64_C(1) << n) - 1) << first;
}

/* Says whether a slot that is cut has UNITS free that follow each other. */
static bool slots_have_run(const struct slots *slots, uint32_t units)
{
    return units < SLOT_UNITS && slots->runs >> units != 0;
}

/* Takes UNITS that follow each other of a slot that is cut, or returns NULL. */
static void *slots_take_units(struct slots *slots, uint32_t units)
{
    if (!slots_have_run(slots, units))
        return NULL;
    /* The longest run of that slot is the shortest that is long enough. */
    const uint32_t run = (uint32_t)__builtin_ctzll(slots->runs >> units) + units;
    const uint32_t slot = slots->by_run[run];
    struct cut *cut = &slots->cuts[slot];
    unlist_cut(slots, slot);
    const uint32_t unit = (uint32_t)__builtin_ctzll(beginnings(~cut->used, units));
    cut->used |= bits(unit, units);
    list_cut(slots, slot);
    return slots_data(slots, slot) + unit * UNIT_BYTES;
}

/* Cuts a slot that was taken: its first UNITS, fewer than all, stay the caller's. */
static void slots_cut(struct slots *slots, uint32_t slot, uint32_t units)
{
    slots->cuts[slot].used = bits(0, units);
    list_cut(slots, slot);
}

/* Makes units free again. Returns true when the slot is whole now, and the caller's. */
static bool slots_give_units(struct slots *slots, const void *data, uint32_t units)
{
    const uint32_t slot = slots_of(slots, data);
    struct cut *cut = &slots->cuts[slot];
    const size_t at = (size_t)((const unsigned char *)data - slots_data(slots, slot));
    unlist_cut(slots, slot);
    cut->used &= ~bits((uint32_t)(at / UNIT_BYTES), units);
    if (cut->used == 0)
        return true;
    list_cut(slots, slot);
    return false;
}

/* Guards the memory of a slot that will hold secret bytes, before its first use. */
static void slots_guard(const struct slots *slots, uint32_t slot)
{
    if (slots->secret)
        rfs_secret_guard(slots->secret, slots_data(slots, slot), RFS_CACHE_SLOT_BYTES);
}

/* Gives the slot's memory back to the system; its content is lost. */
static void slots_cool(const struct slots *slots, uint32_t slot)
{
    if (slots->secret)
        rfs_secret_release(slots_data(slots, slot), RFS_CACHE_SLOT_BYTES);
    madvise(slots_data(slots, slot), RFS_CACHE_SLOT_BYTES, MADV_DONTNEED);
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* Bytes that malloc and the table take for a piece, and its struct. */
#define PIECE_COST (sizeof(struct rfs_cache_piece) + 64)

/* Buckets of the hash table at first. */
#define TABLE_LEAST 64

/* Entries of the ghost list; one for each of as many MiB. */
#define GHOSTS 16384

/* A piece that was evicted; a newer one takes the place of an older. */
struct ghost {
    uint64_t hash; /* hash of its key; 0: none */
    uint64_t used; /* clock of the cache when it was last requested */
};

/* Pieces of a segment, by last use. */
struct lru {
    struct rfs_cache_piece *newest, *oldest;
    uint64_t bytes; /* sum of their charges */
};

struct rfs_cache {
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t done;  /* broadcast when a piece stopped being filled */
    uint64_t budget;
    /* charges of all pieces that are not freed, warm slots, and free units of cut ones */
    uint64_t bytes;
    struct rfs_cache_piece **table;
    size_t table_size; /* a power of two */
    size_t n;          /* pieces in the table */
    struct lru segments[RFS_SEGMENT_COUNT];
    struct ghost *ghosts;    /* [GHOSTS], by hash */
    uint64_t clock;          /* charges of all pieces that were ever read to their end */
    uint64_t probation_room; /* bytes that the probation segment may take */
    uint64_t warm_most;      /* slots that stay warm when nothing needs them */
    uint32_t refused;        /* pieces that were not made ahead, for want of room */
    uint32_t rooms;          /* slots that rfs_cache_take_room gave: as many more may stay warm */
    struct slots slots;
    /* [slots.total] first piece in a slot that is cut; undefined for other slots */
    struct rfs_cache_piece **mates;
    uint8_t *unread_in;    /* [slots.total] number of unread pieces in a slot that is cut */
    uint32_t unread_slots; /* slots that are cut and have unread pieces */
    struct rfs_cache_counters counters; /* all but bytes */
};

/* Work that a call found under the lock and does when the lock is released. */
struct later {
    struct rfs_cache_piece *free; /* pieces to free, linked by chain */
    uint32_t n_cool;
    uint32_t cool[4]; /* slots to give back to the system */
};

/* ---- pieces by key, and the ghost list ------------------------------------------------------- */

/*
 * Returns the bucket of a key. Ids are hashes already; numbers in sequence take buckets in
 * sequence.
 */
static struct rfs_cache_piece **bucket_of(const struct rfs_cache *cache,
                                          const struct rfs_cache_key *key)
{
    return &cache->table[(key->id[0] + key->number) & (cache->table_size - 1)];
}

static bool same_key(const struct rfs_cache_key *a, const struct rfs_cache_key *b)
{
    return a->id[0] == b->id[0] && a->id[1] == b->id[1] && a->number == b->number;
}

static struct rfs_cache_piece *find(const struct rfs_cache *cache, const struct rfs_cache_key *key)
{
    struct rfs_cache_piece *piece = *bucket_of(cache, key);
    while (piece && !same_key(&piece->key, key))
        piece = piece->chain;
    return piece;
}

/* A table that can't grow only gets slower. */
static void grow_table(struct rfs_cache *cache)
{
    struct rfs_cache_piece **old = cache->table;
    const size_t old_size = cache->table_size;
    struct rfs_cache_piece **table = calloc(old_size * 2, sizeof(struct rfs_cache_piece *));
    if (!table)
        return;
    cache->table = table;
    cache->table_size = old_size * 2;
    for (size_t i = 0; i < old_size; i++) {
        while (old[i]) {
            struct rfs_cache_piece *piece = old[i];
            old[i] = piece->chain;
            struct rfs_cache_piece **bucket = bucket_of(cache, &piece->key);
            piece->chain = *bucket;
            *bucket = piece;
        }
    }
    free(old);
}

static void insert(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    if (cache->n >= cache->table_size)
        grow_table(cache);
    struct rfs_cache_piece **bucket = bucket_of(cache, &piece->key);
    piece->chain = *bucket;
    *bucket = piece;
    cache->n++;
}

static void take_out(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    struct rfs_cache_piece **bucket = bucket_of(cache, &piece->key);
    while (*bucket != piece)
        bucket = &(*bucket)->chain;
    *bucket = piece->chain;
    cache->n--;
}

/* Returns a hash that is never 0. Ids are hashes already. */
static uint64_t hash_of(const struct rfs_cache_key *key)
{
    return (key->id[0] ^ (key->number * UINT64_C(0x9e3779b97f4a7c15))) | 1;
}

/* Returns NULL for a piece that was not here, or went too long ago. */
static const struct ghost *find_ghost(const struct rfs_cache *cache,
                                      const struct rfs_cache_key *key)
{
    const uint64_t hash = hash_of(key);
    const struct ghost *ghost = &cache->ghosts[hash / 2 % GHOSTS];
    return ghost->hash == hash ? ghost : NULL;
}

static void leave_ghost(struct rfs_cache *cache, const struct rfs_cache_piece *piece)
{
    const uint64_t hash = hash_of(&piece->key);
    cache->ghosts[hash / 2 % GHOSTS] = (struct ghost){hash, piece->used};
}

/* ---- memory of pieces, and its share of the budget ------------------------------------------- */

/*
 * Puts a warm slot on the list of those to be given back to the system; returns false when LATER
 * has enough of them.
 */
static bool cool(struct rfs_cache *cache, struct later *later)
{
    if (later->n_cool == sizeof later->cool / sizeof later->cool[0])
        return false;
    later->cool[later->n_cool++] = slots_take_warm(&cache->slots);
    cache->bytes -= RFS_CACHE_SLOT_BYTES;
    return true;
}

static void leave_mates(struct rfs_cache *cache, const struct rfs_cache_piece *piece)
{
    struct rfs_cache_piece **link = &cache->mates[piece->slot];
    while (*link != piece)
        link = &(*link)->mate;
    *link = piece->mate;
}

/* Gives a piece's memory back; it stays counted, as that of a warm slot or of free units. */
static void give_memory(struct rfs_cache *cache, const struct rfs_cache_piece *piece)
{
    bool whole = piece->units == SLOT_UNITS;
    if (!whole) {
        leave_mates(cache, piece);
        whole = slots_give_units(&cache->slots, piece->data, piece->units);
    }
    if (whole)
        slots_give_warm(&cache->slots, piece->slot);
    cache->bytes += piece->units * UNIT_BYTES;
}

/* Puts a forgotten piece without pins on the list of those to be freed. */
static void dispose(struct rfs_cache *cache, struct rfs_cache_piece *piece, struct later *later)
{
    cache->bytes -= piece->charge;
    give_memory(cache, piece);
    piece->chain = later->free;
    later->free = piece;
}

/* Says whether UNITS can be had of memory that is counted already. */
static bool is_counted(const struct rfs_cache *cache, uint32_t units)
{
    return cache->slots.n_warm > 0 || slots_have_run(&cache->slots, units);
}

/* Takes a slot, which is not counted any more, or returns NO_SLOT. */
static uint32_t take_slot(struct rfs_cache *cache)
{
    const uint32_t slot = slots_take_warm(&cache->slots);
    if (slot == NO_SLOT)
        return slots_take_cold(&cache->slots);
    cache->bytes -= RFS_CACHE_SLOT_BYTES;
    return slot;
}

/*
 * Gives the piece memory, which is to be charged: units of a slot that is cut if there are some,
 * else of a slot that is not yet.
 */
static bool take_memory(struct rfs_cache *cache, struct rfs_cache_piece *piece, uint32_t units)
{
    struct slots *slots = &cache->slots;
    const uint64_t bytes = units * UNIT_BYTES;
    piece->units = units;
    piece->data = slots_take_units(slots, units);
    if (piece->data) {
        cache->bytes -= bytes;
    } else {
        const uint32_t slot = take_slot(cache);
        if (slot == NO_SLOT)
            return false;
        piece->data = slots_data(slots, slot);
        if (units < SLOT_UNITS) {
            slots_cut(slots, slot, units);
            cache->mates[slot] = NULL;
            cache->bytes += RFS_CACHE_SLOT_BYTES - bytes;
        }
    }
    piece->slot = slots_of(slots, piece->data);
    if (units < SLOT_UNITS) {
        piece->mate = cache->mates[piece->slot];
        cache->mates[piece->slot] = piece;
    }
    return true;
}

/* ---- the policy, which cache.h explains ------------------------------------------------------ */

/*
 * A piece that was requested this often is protected even if it was not read to its end: by small
 * reads all over.
 */
#define HITS_PROTECT 64

/* One in so many of the pieces that are not made ahead for want of room is made none the less. */
#define STALE_AHEAD 16

static void add_to(struct rfs_cache *cache, struct rfs_cache_piece *piece, enum rfs_segment segment)
{
    struct lru *lru = &cache->segments[segment];
    piece->segment = segment;
    piece->newer = NULL;
    piece->older = lru->newest;
    *(lru->newest ? &lru->newest->newer : &lru->oldest) = piece;
    lru->newest = piece;
    lru->bytes += piece->charge;
}

static void leave(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    struct lru *lru = &cache->segments[piece->segment];
    *(piece->newer ? &piece->newer->older : &lru->newest) = piece->older;
    *(piece->older ? &piece->older->newer : &lru->oldest) = piece->newer;
    lru->bytes -= piece->charge;
}

static void move(struct rfs_cache *cache, struct rfs_cache_piece *piece, enum rfs_segment segment)
{
    leave(cache, piece);
    add_to(cache, piece, segment);
}

/* Notes whether the piece, which has its memory, is made ahead and nobody has asked for it yet. */
static void set_unread(struct rfs_cache *cache, struct rfs_cache_piece *piece, bool unread)
{
    if (piece->units < SLOT_UNITS && piece->unread != unread) {
        uint8_t *in = &cache->unread_in[piece->slot];
        cache->unread_slots -= *in > 0;
        *in = (uint8_t)(*in + (unread ? 1 : -1));
        cache->unread_slots += *in > 0;
    }
    piece->unread = unread;
}

/* Takes the piece out of the table and its segment. Threads that wait for it get RC. */
static void forget(struct rfs_cache *cache, struct rfs_cache_piece *piece, int rc)
{
    take_out(cache, piece);
    if (piece->state == RFS_PIECE_READY) {
        leave(cache, piece);
        cache->counters.unread += piece->unread;
    }
    set_unread(cache, piece, false);
    piece->state = RFS_PIECE_GONE;
    piece->rc = rc;
}

/* Notes that a piece was found and is ready. */
static void hit(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    cache->counters.hits += !piece->passing;
    set_unread(cache, piece, false);
    piece->used = cache->clock;
    const bool protect =
        piece->segment != RFS_SEGMENT_PENDING || (!piece->passing && ++piece->hits >= HITS_PROTECT);
    move(cache, piece, protect ? RFS_SEGMENT_PROTECTED : RFS_SEGMENT_PENDING);
}

/* Notes that the last pin of a ready piece was released. */
static void rest(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    if (piece->segment != RFS_SEGMENT_PENDING || !atomic_load(&piece->read_through))
        return;
    if (piece->passing) {
        forget(cache, piece, 0);
        return;
    }
    cache->clock += piece->charge;
    piece->used = cache->clock;
    move(cache, piece, piece->returned ? RFS_SEGMENT_PROTECTED : RFS_SEGMENT_PROBATION);
}

/*
 * Returns the bytes that the probation segment may take even if the protected one would take all:
 * for readers a little later.
 */
static uint64_t probation_share(const struct rfs_cache *cache)
{
    return rfs_min_u64(cache->probation_room, cache->budget / 2);
}

static bool is_over_share(const struct rfs_cache *cache)
{
    return cache->segments[RFS_SEGMENT_PROBATION].bytes > probation_share(cache);
}

/* Says whether pieces that wait for their readers take more than a quarter of the budget. */
static bool is_crowded(const struct rfs_cache *cache)
{
    return cache->segments[RFS_SEGMENT_PENDING].bytes > cache->budget / 4;
}

/*
 * Says whether slots in which unread pieces are take more than a quarter of the budget: one such
 * piece keeps its whole slot from other uses.
 */
static bool is_cut_up(const struct rfs_cache *cache)
{
    return (uint64_t)cache->unread_slots * RFS_CACHE_SLOT_BYTES > cache->budget / 4;
}

/*
 * Says whether there is room to make a piece ahead. Readers ahead of each other must not evict
 * pieces that the others wait for: they would be made twice. But those may never be read, so one in
 * STALE_AHEAD does push.
 */
static bool has_room_ahead(struct rfs_cache *cache)
{
    const uint64_t warm = (uint64_t)cache->slots.n_warm * RFS_CACHE_SLOT_BYTES;
    const bool full = cache->bytes - warm + RFS_CACHE_SLOT_BYTES + PIECE_COST > cache->budget;

    if (!full || !is_crowded(cache) || is_over_share(cache))
        return true;
    return ++cache->refused % STALE_AHEAD == 0;
}

/*
 * Gives the probation segment more room, as a piece that was evicted AWAY bytes of the clock ago,
 * and takes CHARGE, is requested again. Returns whether the piece is to be protected once it was
 * read.
 *
 * With twice the room that the piece would have taken, the next ones are there when they are asked
 * for again. It is to be protected while there is room; and then in the place of the protected
 * piece that was not asked for the longest, if that is longer. So a part of repeatedly read data
 * that is larger than the budget stays, where by last use alone each piece would go just before it
 * is requested.
 */
static bool note_return(struct rfs_cache *cache, uint64_t away, uint64_t charge)
{
    const struct lru *protected = &cache->segments[RFS_SEGMENT_PROTECTED];
    const bool protect = !protected->oldest ||
                         protected->bytes + charge <= cache->budget - probation_share(cache) ||
                         away < cache->clock - protected->oldest->used;

    if (away <= cache->budget / 2)
        cache->probation_room = rfs_max_u64(cache->probation_room, 2 * away + charge);
    return protect;
}

/* Evicts a piece that is ready and not pinned. */
static void evict(struct rfs_cache *cache, struct rfs_cache_piece *piece, struct later *later)
{
    if (piece->segment != RFS_SEGMENT_PENDING)
        leave_ghost(cache, piece);
    forget(cache, piece, 0);
    dispose(cache, piece, later);
    cache->counters.evictions++;
}

static bool evict_from(struct rfs_cache *cache, enum rfs_segment segment, struct later *later)
{
    struct rfs_cache_piece *piece = cache->segments[segment].oldest;
    while (piece && piece->pins > 0)
        piece = piece->newer;
    if (piece)
        evict(cache, piece, later);
    return piece;
}

/*
 * Evicts the piece whose turn it is. Pieces that wait for their readers go last, unless readers
 * that never came left a quarter of the budget.
 */
static bool evict_one(struct rfs_cache *cache, struct later *later)
{
    const bool crowded = is_crowded(cache);

    return (is_over_share(cache) && evict_from(cache, RFS_SEGMENT_PROBATION, later)) ||
           (crowded && evict_from(cache, RFS_SEGMENT_PENDING, later)) ||
           evict_from(cache, RFS_SEGMENT_PROTECTED, later) ||
           evict_from(cache, RFS_SEGMENT_PROBATION, later) ||
           evict_from(cache, RFS_SEGMENT_PENDING, later);
}

/* Keeps the probation segment, with CHARGE more, within its room. */
static void bound(struct rfs_cache *cache, uint64_t charge, struct later *later)
{
    while (cache->segments[RFS_SEGMENT_PROBATION].bytes + charge > cache->probation_room &&
           evict_from(cache, RFS_SEGMENT_PROBATION, later)) {
        /* The room shrinks while evicted pieces are not requested again. */
        const uint64_t less = rfs_min_u64(charge / 8, cache->probation_room);
        cache->probation_room = rfs_max_u64(RFS_PROBATION_BYTES, cache->probation_room - less);
    }
    /* Two at a time, as making room may need to cool some, too. */
    while (cache->slots.n_warm > cache->warm_most + cache->rooms && later->n_cool < 2 &&
           cool(cache, later))
        continue;
}

/*
 * Evicts the piece whose turn it is and, if it was in a slot that is cut, what else is there as
 * far as it is in the way of UNITS. Returns false when there is none. So room is made by one slot
 * at a time, where the oldest pieces of all slots would go for a single run of units. What was made
 * ahead and still waits for its reader stays, as long as neither such pieces nor the slots in which
 * they are take a quarter of the budget: with one of 16 KiB in each slot, all that was beside them
 * would go, and there would be no slot.
 */
static bool evict_for(struct rfs_cache *cache, uint32_t units, struct later *later)
{
    if (!evict_one(cache, later))
        return false;
    const struct rfs_cache_piece *gone = later->free;
    struct rfs_cache_piece *mate = gone->units < SLOT_UNITS ? cache->mates[gone->slot] : NULL;
    while (mate && !is_counted(cache, units)) {
        struct rfs_cache_piece *next = mate->mate;
        const bool waits = mate->unread && !is_crowded(cache) && !is_cut_up(cache);
        if (mate->state == RFS_PIECE_READY && mate->pins == 0 && !waits)
            evict(cache, mate, later);
        mate = next;
    }
    return true;
}

/* Makes room in the budget for UNITS, which may be counted already, and for COST. */
static bool make_room(struct rfs_cache *cache, uint32_t units, uint64_t cost, struct later *later)
{
    if (cost > cache->budget || RFS_CACHE_SLOT_BYTES > cache->budget - cost)
        return false;
    for (;;) {
        const uint64_t more = cost + (is_counted(cache, units) ? 0 : RFS_CACHE_SLOT_BYTES);
        if (cache->bytes <= cache->budget - more)
            return true;
        const uint32_t keep = slots_have_run(&cache->slots, units) ? 0 : 1;
        if (cache->slots.n_warm > keep) {
            if (!cool(cache, later))
                return false;
        } else if (!evict_for(cache, units, later)) {
            return false;
        }
    }
}

/* ---- its functions --------------------------------------------------------------------------- */

/* More warm slots than are soon used again go back to the system. */
#define WARM_MOST 16
/* A piece of so many units or more takes a whole slot. */
#define WHOLE_LEAST (SLOT_UNITS / 4 * 3)

void rfs_cache_keep_secret(struct rfs_cache *cache, struct rfs_secret *secret)
{
    cache->slots.secret = secret;
}

static void free_piece(struct rfs_cache_piece *piece)
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
            struct rfs_cache_piece *piece = cache->table[i];
            cache->table[i] = piece->chain;
            if (cache->slots.secret)
                rfs_secret_wipe(piece->data, piece->size);
            free_piece(piece);
        }
    }
    free(cache->table);
    free(cache->ghosts);
    free(cache->mates);
    free(cache->unread_in);
    slots_destroy(&cache->slots);
    pthread_cond_destroy(&cache->done);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

struct rfs_cache *rfs_cache_new(uint64_t budget)
{
    struct rfs_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    cache->budget = budget;
    cache->probation_room = RFS_PROBATION_BYTES;
    cache->warm_most = WARM_MOST;
    pthread_mutex_init(&cache->lock, NULL);
    rfs_cancel_init_cond(&cache->done);
    slots_init(&cache->slots, budget);
    const size_t slots = cache->slots.total + (size_t)1;
    cache->table = calloc(TABLE_LEAST, sizeof(struct rfs_cache_piece *));
    cache->table_size = cache->table ? TABLE_LEAST : 0;
    cache->ghosts = calloc(GHOSTS, sizeof *cache->ghosts);
    cache->mates = malloc(slots * sizeof(struct rfs_cache_piece *));
    cache->unread_in = calloc(slots, sizeof *cache->unread_in);
    if (!cache->table || !cache->ghosts || !cache->mates || !cache->unread_in) {
        rfs_cache_free(cache);
        return NULL;
    }
    if (cache->slots.total < budget / RFS_CACHE_SLOT_BYTES) /* no more can be reserved */
        cache->budget = slots * RFS_CACHE_SLOT_BYTES - 1;
    return cache;
}

static void unpin(struct rfs_cache *cache, struct rfs_cache_piece *piece, struct later *later)
{
    if (--piece->pins > 0)
        return;
    if (piece->state == RFS_PIECE_READY)
        rest(cache, piece);
    if (piece->state == RFS_PIECE_GONE)
        dispose(cache, piece, later);
}

/* Releases the lock, then does the work that was put off. */
static void unlock(struct rfs_cache *cache, struct later *later)
{
    pthread_mutex_unlock(&cache->lock);
    while (later->free) {
        struct rfs_cache_piece *piece = later->free;
        later->free = piece->chain;
        free_piece(piece);
    }
    if (later->n_cool == 0)
        return;
    for (uint32_t i = 0; i < later->n_cool; i++)
        slots_cool(&cache->slots, later->cool[i]);
    pthread_mutex_lock(&cache->lock);
    while (later->n_cool > 0)
        slots_give_cold(&cache->slots, later->cool[--later->n_cool]);
    pthread_mutex_unlock(&cache->lock);
}

/* Returns the units of a piece: all of a slot for secret data, which is guarded by slots. */
static uint32_t units_for(const struct rfs_cache *cache, size_t size)
{
    const size_t units = (size + UNIT_BYTES - 1) / UNIT_BYTES;
    return cache->slots.secret || units >= WHOLE_LEAST ? SLOT_UNITS : (uint32_t)units;
}

/* Makes a piece to be filled, in the table and pinned; returns NULL when there is no room. */
static struct rfs_cache_piece *claim(struct rfs_cache *cache, const struct rfs_cache_key *key,
                                     size_t size, size_t max_files, struct later *later)
{
    if (size > RFS_CACHE_SLOT_BYTES || (cache->slots.secret && size < RFS_SECRET_LEAST))
        return NULL;
    const uint32_t units = units_for(cache, size);
    const uint64_t cost = PIECE_COST + max_files * sizeof(uint32_t);
    const uint64_t charge = units * UNIT_BYTES + cost;
    const struct ghost *ghost = find_ghost(cache, key);
    const bool returned = ghost && note_return(cache, cache->clock - ghost->used, charge);
    bound(cache, charge, later); /* the memory of one that goes is warm */
    if (!make_room(cache, units, cost, later))
        return NULL;
    struct rfs_cache_piece *piece = calloc(1, sizeof *piece);
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
    piece->returned = returned;
    piece->used = cache->clock;
    cache->bytes += charge;
    insert(cache, piece);
    return piece;
}

/*
 * Waits until a piece of the table is no longer being filled. Returns an rfs_cache_got or -errno.
 */
static int await(struct rfs_cache *cache, struct rfs_cache_piece *piece, struct later *later)
{
    int waited = 0;
    piece->pins++;
    while (piece->state == RFS_PIECE_FILLING && waited == 0)
        waited = rfs_cancel_wait(&cache->done, &cache->lock);
    if (piece->state != RFS_PIECE_READY) {
        const int rc = waited < 0 ? waited : piece->rc;
        unpin(cache, piece, later);
        return rc < 0 ? rc : RFS_GOT_NOTHING;
    }
    hit(cache, piece);
    return RFS_GOT_PIECE;
}

int rfs_cache_get(struct rfs_cache *cache, const struct rfs_cache_key *key, size_t size,
                  size_t max_files, enum rfs_cache_want want, struct rfs_cache_piece **out)
{
    struct later later = {0};
    int got = RFS_GOT_NOTHING;
    pthread_mutex_lock(&cache->lock);
    struct rfs_cache_piece *piece = find(cache, key);
    if (piece && want != RFS_WANT_ABSENT) {
        got = await(cache, piece, &later);
    } else if (!piece) {
        const bool missed = want == RFS_WANT_FOUND || want == RFS_WANT_MADE;
        cache->counters.misses += missed;
        cache->counters.regrets += missed && find_ghost(cache, key);
        if (want == RFS_WANT_MADE || (want == RFS_WANT_ABSENT && has_room_ahead(cache)))
            piece = claim(cache, key, size, max_files, &later);
        if (piece)
            set_unread(cache, piece, want == RFS_WANT_ABSENT);
        got = piece ? RFS_GOT_CLAIM : RFS_GOT_NOTHING;
    }
    unlock(cache, &later);
    if (got == RFS_GOT_CLAIM)
        slots_guard(&cache->slots, piece->slot);
    *out = got > RFS_GOT_NOTHING ? piece : NULL;
    return got;
}

void rfs_cache_publish(struct rfs_cache *cache, struct rfs_cache_piece *piece, int rc)
{
    struct later later = {0};
    pthread_mutex_lock(&cache->lock);
    if (rc == 0) {
        piece->state = RFS_PIECE_READY;
        cache->counters.inserts++;
        add_to(cache, piece, RFS_SEGMENT_PENDING);
    } else {
        forget(cache, piece, rc);
        unpin(cache, piece, &later);
    }
    pthread_cond_broadcast(&cache->done);
    unlock(cache, &later);
}

void rfs_cache_unpin(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    struct later later = {0};
    pthread_mutex_lock(&cache->lock);
    unpin(cache, piece, &later);
    unlock(cache, &later);
}

void rfs_cache_drop(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    pthread_mutex_lock(&cache->lock);
    if (piece->state == RFS_PIECE_READY)
        forget(cache, piece, 0);
    pthread_mutex_unlock(&cache->lock);
}

void rfs_cache_keep_warm(struct rfs_cache *cache, uint64_t pieces)
{
    pthread_mutex_lock(&cache->lock);
    cache->warm_most = rfs_max_u64(cache->warm_most, pieces);
    pthread_mutex_unlock(&cache->lock);
}

void *rfs_cache_take_room(struct rfs_cache *cache)
{
    struct later later = {0};
    uint32_t slot = NO_SLOT;
    pthread_mutex_lock(&cache->lock);
    if (cache->slots.total > 0 && make_room(cache, SLOT_UNITS, 0, &later))
        slot = take_slot(cache);
    if (slot != NO_SLOT) {
        cache->bytes += RFS_CACHE_SLOT_BYTES;
        cache->rooms++;
    }
    unlock(cache, &later);
    if (slot == NO_SLOT)
        return NULL;
    slots_guard(&cache->slots, slot);
    return slots_data(&cache->slots, slot);
}

void rfs_cache_give_room(struct rfs_cache *cache, void *room)
{
    pthread_mutex_lock(&cache->lock);
    cache->rooms--;
    slots_give_warm(&cache->slots, slots_of(&cache->slots, room)); /* counted as before */
    pthread_mutex_unlock(&cache->lock);
}

void rfs_cache_count(struct rfs_cache *cache, struct rfs_cache_counters *out)
{
    pthread_mutex_lock(&cache->lock);
    *out = cache->counters;
    out->bytes = cache->bytes;
    pthread_mutex_unlock(&cache->lock);
}
