/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds pieces by key, gives them memory, and decides which of them stay. The cache's lock guards
 * all of it, but not the calls that take memory of the system and give it back.
 */
#include "assemble/cache.h"

#include "base/aged.h"
#include "base/cancel.h"
#include "base/checked.h"
#include "base/limits.h"
#include "base/pages.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes that malloc and the table take for a piece, and its struct. */
#define PIECE_COST (sizeof(struct rfs_cache_piece) + 64)
/* Buckets of the hash table; it has more where more whole pieces fit into the budget. */
#define TABLE_LEAST 1024
#define TABLE_MOST (1 << 20)
/*
 * Entries of the list of pieces that went: as many as the least pieces in the budget, within these.
 */
#define GONE_LEAST 256
#define GONE_MOST 16384
/* Memory of pieces that went, which soon is used again; more goes back to the system. */
#define SPARE_MOST (UINT64_C(16) << 20)
/* Pieces of so many bytes have the memory of a whole one, which is likely to be used again. */
#define WHOLE_LEAST (RFS_CACHE_PIECE_BYTES / 4 * 3)
/* Whole pieces beyond the budget that have addresses: as many may be on their way to the system. */
#define LEAVING 16
/* Spares that are compared with the wanted size. */
#define SPARE_LOOK 64
/* One in so many of the pieces that are not made ahead for want of room is made none the less. */
#define STALE_AHEAD 16

/* Memory that is free, at its beginning. */
struct spare {
    struct spare *next;
    size_t bytes;
};

/* Pieces by last use. */
struct lru {
    struct rfs_cache_piece *newest, *oldest;
    uint64_t bytes; /* sum of their charges */
};

struct rfs_cache {
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t done;  /* broadcast when a piece stopped being filled */
    uint64_t budget;
    uint64_t most; /* that the budget may be */
    size_t page;
    uint64_t bytes; /* charges of all pieces that are not freed, spares, and rooms */
    struct rfs_cache_piece **table;
    size_t table_size;  /* a power of two */
    struct lru waiting; /* pieces that were not read to their end */
    struct lru read;    /* pieces that were */
    uint64_t read_most; /* bytes of pieces that were read */
    uint64_t *gone;     /* [gone_size] hashes of keys of pieces that went, by hash; 0: none */
    size_t gone_size;   /* a power of two */
    void *range;        /* addresses of whole pieces */
    size_t range_bytes;
    unsigned char *unused; /* first of them that was never used */
    uint64_t n_unused;     /* whole pieces from there on */
    void **cold;           /* [n_cold] addresses of whole pieces that have no memory now */
    uint64_t n_cold;
    struct spare *spares; /* the last one first */
    uint64_t spare_bytes; /* bytes of all spares */
    uint64_t spare_most;  /* bytes of spares that stay when nothing needs them */
    uint64_t rooms;       /* bytes that rfs_cache_take_room gave: as many more may be spare */
    uint32_t n_short;     /* mappings of less than RFS_CACHE_PIECE_BYTES */
    uint32_t refused;     /* pieces that were not made ahead, for want of room */
    struct rfs_cache_counters counters; /* all but bytes */
};

/* Work that a call found under the lock and does when the lock is released. */
struct later {
    struct rfs_cache_piece *pieces; /* pieces to free, without memory, linked by chain */
    struct spare *spares;           /* memory to give back to the system */
};

/* ---- pieces by key --------------------------------------------------------------------------- */

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

static void insert(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    struct rfs_cache_piece **bucket = bucket_of(cache, &piece->key);
    piece->chain = *bucket;
    *bucket = piece;
}

static void take_out(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    struct rfs_cache_piece **bucket = bucket_of(cache, &piece->key);
    while (*bucket != piece)
        bucket = &(*bucket)->chain;
    *bucket = piece->chain;
}

/* Returns where the list of pieces that went has a key. */
static uint64_t *gone_at(const struct rfs_cache *cache, const struct rfs_cache_key *key,
                         uint64_t *hash)
{
    *hash = (key->id[0] ^ (key->number * UINT64_C(0x9e3779b97f4a7c15))) | 1;
    return &cache->gone[*hash / 2 % cache->gone_size];
}

static bool is_gone(const struct rfs_cache *cache, const struct rfs_cache_key *key)
{
    uint64_t hash;
    return *gone_at(cache, key, &hash) == hash;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/*
 * Whole pieces lie in one range of addresses, which the kernel backs by huge pages where it may:
 * that makes fresh memory and the kernel's copies cheaper. Shorter pieces are mapped one by one. So
 * pieces of any size, in any order, take no more memory than their pages.
 */

/*
 * Reserves the range, for the budget; or for half as much, and so on, where the process may have no
 * more addresses. The budget is what it has then.
 */
static bool reserve(struct rfs_cache *cache)
{
    const uint64_t most = cache->budget / RFS_CACHE_PIECE_BYTES;
    uint64_t total = rfs_min_u64(most, SIZE_MAX / RFS_CACHE_PIECE_BYTES / 2);
    do {
        cache->range_bytes = (size_t)(total + LEAVING) * RFS_CACHE_PIECE_BYTES + RFS_HUGE_PAGE;
        cache->range = rfs_pages_alloc(cache->range_bytes);
    } while (!cache->range && (total /= 2) > 0);
    cache->cold = calloc((size_t)total + LEAVING, sizeof(void *));
    if (total < most)
        cache->budget = (total + 1) * RFS_CACHE_PIECE_BYTES - 1;
    if (!cache->range)
        return cache->cold;
    cache->n_unused = total + LEAVING;
    cache->unused =
        (unsigned char *)cache->range + RFS_HUGE_PAGE - (uintptr_t)cache->range % RFS_HUGE_PAGE;
    return cache->cold;
}

/* Returns memory for a whole piece that has none yet, or NULL when all addresses are used. */
static void *take_cold(struct rfs_cache *cache)
{
    if (cache->n_cold > 0)
        return cache->cold[--cache->n_cold];
    if (cache->n_unused == 0)
        return NULL;
    cache->n_unused--;
    cache->unused += RFS_CACHE_PIECE_BYTES;
    return cache->unused - RFS_CACHE_PIECE_BYTES;
}

/* Returns the bytes of memory for a piece of SIZE bytes: pages, or that of a whole piece. */
static size_t pages_of(const struct rfs_cache *cache, size_t size)
{
    return size >= WHOLE_LEAST && size <= RFS_CACHE_PIECE_BYTES
               ? RFS_CACHE_PIECE_BYTES
               : (size + cache->page - 1) / cache->page * cache->page;
}

/* Makes memory spare, which is not counted. */
static void put_spare(struct rfs_cache *cache, void *memory, size_t bytes)
{
    struct spare *spare = memory;
    *spare = (struct spare){cache->spares, bytes};
    cache->spares = spare;
    cache->spare_bytes += bytes;
    cache->bytes += bytes;
}

/*
 * Takes spare memory of so many bytes, or an old one if it is 0; returns NULL when there is none,
 * or not among the last ones.
 */
static struct spare *take_spare(struct rfs_cache *cache, size_t bytes)
{
    struct spare **link = &cache->spares;
    for (unsigned i = 0; *link && (*link)->bytes != bytes; i++) {
        const bool last = i == SPARE_LOOK || !(*link)->next;
        if (last && bytes > 0)
            return NULL;
        if (last)
            break;
        link = &(*link)->next;
    }
    struct spare *spare = *link;
    if (!spare)
        return NULL;
    *link = spare->next;
    cache->spare_bytes -= spare->bytes;
    cache->bytes -= spare->bytes;
    return spare;
}

/* Puts spare memory on the list of what goes back to the system; returns whether there is any. */
static bool drop_spare(struct rfs_cache *cache, struct later *later)
{
    struct spare *spare = take_spare(cache, 0);
    if (!spare)
        return false;
    cache->n_short -= spare->bytes < RFS_CACHE_PIECE_BYTES;
    spare->next = later->spares;
    later->spares = spare;
    return true;
}

/* Puts a forgotten piece without pins on the list of those to be freed; its memory is spare. */
static void dispose(struct rfs_cache *cache, struct rfs_cache_piece *piece, struct later *later)
{
    const size_t bytes = pages_of(cache, piece->size);
    cache->bytes -= piece->charge;
    if (piece->data)
        put_spare(cache, piece->data, bytes);
    else
        cache->n_short -= bytes < RFS_CACHE_PIECE_BYTES;
    piece->chain = later->pieces;
    later->pieces = piece;
}

/* Gives memory back to the system. The lock is not held. */
static void give_back(struct rfs_cache *cache, struct spare *spare)
{
    if (spare->bytes < RFS_CACHE_PIECE_BYTES) {
        rfs_pages_free(spare, spare->bytes);
        return;
    }
    rfs_pages_release(spare, RFS_CACHE_PIECE_BYTES);
    pthread_mutex_lock(&cache->lock);
    cache->cold[cache->n_cold++] = spare;
    pthread_mutex_unlock(&cache->lock);
}

/* Releases the lock, then does the work that was put off. */
static void unlock(struct rfs_cache *cache, struct later *later)
{
    pthread_mutex_unlock(&cache->lock);
    while (later->pieces) {
        struct rfs_cache_piece *piece = later->pieces;
        later->pieces = piece->chain;
        free(piece->files);
        free(piece);
    }
    while (later->spares) {
        struct spare *spare = later->spares;
        later->spares = spare->next;
        give_back(cache, spare);
    }
}

/* ---- the policy, which cache.h explains ------------------------------------------------------ */

static struct lru *lru_of(struct rfs_cache *cache, const struct rfs_cache_piece *piece)
{
    return piece->read ? &cache->read : &cache->waiting;
}

static void enter(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    struct lru *lru = lru_of(cache, piece);
    RFS_AGED_ADD(lru, piece);
    lru->bytes += piece->charge;
}

static void leave(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    struct lru *lru = lru_of(cache, piece);
    RFS_AGED_REMOVE(lru, piece);
    lru->bytes -= piece->charge;
}

/* Takes the piece out of the table and its list. Threads that wait for it get RC. */
static void forget(struct rfs_cache *cache, struct rfs_cache_piece *piece, int rc)
{
    take_out(cache, piece);
    if (piece->state == RFS_PIECE_READY) {
        leave(cache, piece);
        cache->counters.unread += piece->unread;
    }
    piece->state = RFS_PIECE_GONE;
    piece->rc = rc;
}

/* Notes that a piece was found and is ready. */
static void hit(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    cache->counters.hits += !piece->passing;
    piece->unread = false;
    leave(cache, piece);
    enter(cache, piece);
}

static void unpin(struct rfs_cache *cache, struct rfs_cache_piece *piece, struct later *later)
{
    if (--piece->pins > 0)
        return;
    if (piece->state == RFS_PIECE_READY && !piece->read && atomic_load(&piece->read_through)) {
        if (piece->passing) {
            forget(cache, piece, 0);
        } else {
            leave(cache, piece);
            piece->read = true;
            enter(cache, piece);
        }
    }
    if (piece->state == RFS_PIECE_GONE)
        dispose(cache, piece, later);
}

/* Evicts the piece of a list that was used least recently and is not pinned. */
static bool evict_from(struct rfs_cache *cache, const struct lru *lru, struct later *later)
{
    struct rfs_cache_piece *piece = lru->oldest;
    while (piece && piece->pins > 0)
        piece = piece->newer;
    if (!piece)
        return false;
    if (piece->read) {
        uint64_t hash;
        uint64_t *gone = gone_at(cache, &piece->key, &hash);
        *gone = hash;
    }
    forget(cache, piece, 0);
    dispose(cache, piece, later);
    cache->counters.evictions++;
    return true;
}

/* Says whether pieces that wait for their readers take more than a quarter of the budget. */
static bool is_crowded(const struct rfs_cache *cache)
{
    return cache->waiting.bytes > cache->budget / 4;
}

/*
 * Says whether there is room to make a piece ahead. Readers ahead of each other must not evict
 * pieces that the others wait for: they would be made twice. But those may never be read, so one in
 * STALE_AHEAD does push.
 */
static bool has_room_ahead(struct rfs_cache *cache)
{
    const uint64_t used = cache->bytes - cache->spare_bytes;
    const bool full = used + RFS_CACHE_PIECE_BYTES + PIECE_COST > cache->budget;

    return !full || !is_crowded(cache) || ++cache->refused % STALE_AHEAD == 0;
}

/* Keeps what was read, with CHARGE more, and spares within what they may take. */
static void bound(struct rfs_cache *cache, uint64_t charge, struct later *later)
{
    while (cache->read.bytes + charge > cache->read_most && evict_from(cache, &cache->read, later))
        continue;
    for (unsigned i = 0; i < 2 && cache->spare_bytes > cache->spare_most + cache->rooms; i++)
        drop_spare(cache, later);
}

static bool evict_one(struct rfs_cache *cache, struct later *later)
{
    const bool crowded = is_crowded(cache);

    return (crowded && evict_from(cache, &cache->waiting, later)) ||
           evict_from(cache, &cache->read, later) || evict_from(cache, &cache->waiting, later);
}

/*
 * Makes room for memory of BYTES and COST more, which are counted then. *data is the memory; NULL:
 * it is for a short piece, and the caller maps it. Returns false when there is no room.
 */
static bool make_room(struct rfs_cache *cache, size_t bytes, uint64_t cost, struct later *later,
                      void **data)
{
    const uint64_t charge = bytes + cost;
    const bool is_short = bytes < RFS_CACHE_PIECE_BYTES;
    /* Pieces are of few sizes: what one leaves is likely to fit another soon. */
    const uint64_t stay = rfs_min_u64(SPARE_MOST, cache->budget / 8);
    if (charge > cache->budget)
        return false;
    *data = take_spare(cache, bytes);
    while (cache->bytes > cache->budget - charge ||
           (!*data && is_short && cache->n_short >= RFS_CACHE_SHORT_MOST)) {
        if ((cache->spare_bytes <= stay || !drop_spare(cache, later)) && !evict_one(cache, later) &&
            !drop_spare(cache, later)) {
            if (*data)
                put_spare(cache, *data, bytes);
            return false;
        }
        if (!*data)
            *data = take_spare(cache, bytes);
    }
    if (!*data && !is_short && !(*data = take_cold(cache)))
        return false;
    cache->bytes += charge;
    cache->n_short += is_short && !*data;
    return true;
}

/* ---- its functions --------------------------------------------------------------------------- */

void rfs_cache_free(struct rfs_cache *cache)
{
    struct later later = {0};
    if (!cache)
        return;
    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; cache->table && i < cache->table_size; i++) {
        while (cache->table[i]) {
            struct rfs_cache_piece *piece = cache->table[i];
            cache->table[i] = piece->chain;
            dispose(cache, piece, &later);
        }
    }
    while (drop_spare(cache, &later))
        continue;
    unlock(cache, &later);
    if (cache->range)
        munmap(cache->range, cache->range_bytes); /* nothing in it has memory */
    free(cache->cold);
    free(cache->table);
    free(cache->gone);
    pthread_cond_destroy(&cache->done);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

void rfs_cache_limit(struct rfs_cache *cache, uint64_t budget)
{
    struct later later = {0};
    bool more = true;

    pthread_mutex_lock(&cache->lock);
    cache->budget = rfs_min_u64(budget, cache->most);
    while (more && cache->bytes > cache->budget)
        more = drop_spare(cache, &later) || evict_one(cache, &later);
    unlock(cache, &later);
}

struct rfs_cache *rfs_cache_new(uint64_t budget)
{
    struct rfs_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    /* Threads need addresses as well, where these are limited. */
    cache->budget = rfs_min_u64(budget, rfs_limits_addresses() / 4);
    cache->page = (size_t)sysconf(_SC_PAGESIZE);
    cache->read_most = RFS_CACHE_READ_BYTES;
    cache->spare_most = SPARE_MOST;
    pthread_mutex_init(&cache->lock, NULL);
    rfs_cancel_init_cond(&cache->done);
    const bool reserved = reserve(cache);
    cache->most = cache->budget;
    cache->table_size = TABLE_LEAST;
    while (cache->table_size < rfs_min_u64(cache->n_unused, TABLE_MOST))
        cache->table_size *= 2;
    cache->table = calloc(cache->table_size, sizeof(struct rfs_cache_piece *));
    cache->gone_size = GONE_LEAST;
    while (cache->gone_size < rfs_min_u64(cache->budget / cache->page, GONE_MOST))
        cache->gone_size *= 2;
    cache->gone = calloc(cache->gone_size, sizeof *cache->gone);
    if (!reserved || !cache->table || !cache->gone) {
        rfs_cache_free(cache);
        return NULL;
    }
    return cache;
}

/* Makes a piece to be filled, in the table and pinned; returns NULL when there is no room. */
static struct rfs_cache_piece *claim(struct rfs_cache *cache, const struct rfs_cache_key *key,
                                     size_t size, size_t max_files, struct later *later)
{
    void *data;
    const size_t bytes = pages_of(cache, size);
    const uint64_t cost = PIECE_COST + max_files * sizeof(uint32_t);
    if (size > RFS_CACHE_PIECE_BYTES)
        return NULL;
    if (is_gone(cache, key))
        cache->read_most = rfs_min_u64(cache->read_most + 2 * (bytes + cost), cache->budget);
    struct rfs_cache_piece *piece = calloc(1, sizeof *piece);
    uint32_t *files = malloc((max_files > 0 ? max_files : 1) * sizeof *files);
    bound(cache, bytes + cost, later); /* the memory of one that goes is spare */
    if (!piece || !files || !make_room(cache, bytes, cost, later, &data)) {
        free(piece);
        free(files);
        return NULL;
    }
    piece->key = *key;
    piece->pins = 1;
    piece->files = files;
    piece->size = size;
    piece->charge = bytes + cost;
    piece->data = data;
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

/* Maps memory for a claimed piece that has none. */
static int map_memory(struct rfs_cache *cache, struct rfs_cache_piece *piece)
{
    if (!piece->data)
        piece->data = rfs_pages_alloc(pages_of(cache, piece->size));
    if (piece->data)
        return RFS_GOT_CLAIM;
    rfs_cache_publish(cache, piece, RFS_PUBLISH_NOTHING);
    return RFS_GOT_NOTHING;
}

int rfs_cache_get(struct rfs_cache *cache, const struct rfs_cache_key *key, size_t size,
                  size_t max_files, enum rfs_cache_want want, const atomic_bool *passed,
                  struct rfs_cache_piece **out)
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
        cache->counters.regrets += missed && is_gone(cache, key);
        if (want == RFS_WANT_MADE ||
            (want == RFS_WANT_ABSENT && !(passed && atomic_load(passed)) && has_room_ahead(cache)))
            piece = claim(cache, key, size, max_files, &later);
        if (piece)
            piece->unread = want == RFS_WANT_ABSENT;
        got = piece ? RFS_GOT_CLAIM : RFS_GOT_NOTHING;
    }
    unlock(cache, &later);
    if (got == RFS_GOT_CLAIM)
        got = map_memory(cache, piece);
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
        enter(cache, piece);
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
    cache->spare_most = rfs_max_u64(cache->spare_most, pieces * RFS_CACHE_PIECE_BYTES);
    pthread_mutex_unlock(&cache->lock);
}

void *rfs_cache_take_room(struct rfs_cache *cache)
{
    struct later later = {0};
    void *data = NULL;
    pthread_mutex_lock(&cache->lock);
    if (make_room(cache, RFS_CACHE_PIECE_BYTES, 0, &later, &data))
        cache->rooms += RFS_CACHE_PIECE_BYTES;
    else
        data = NULL;
    unlock(cache, &later);
    return data;
}

void rfs_cache_give_room(struct rfs_cache *cache, void *room)
{
    pthread_mutex_lock(&cache->lock);
    cache->rooms -= RFS_CACHE_PIECE_BYTES;
    cache->bytes -= RFS_CACHE_PIECE_BYTES;
    put_spare(cache, room, RFS_CACHE_PIECE_BYTES);
    pthread_mutex_unlock(&cache->lock);
}

void rfs_cache_count(struct rfs_cache *cache, struct rfs_cache_counters *out)
{
    pthread_mutex_lock(&cache->lock);
    *out = cache->counters;
    out->bytes = cache->bytes;
    pthread_mutex_unlock(&cache->lock);
}
