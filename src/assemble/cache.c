/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/cache_internal.h"

#include "base/cancel.h"
#include "base/checked.h"

/* More warm slots than are soon used again go back to the system. */
#define WARM_MOST 16
/* With so many units or more a piece takes a whole slot. */
#define WHOLE_LEAST (RFS_SLOT_UNITS / 4 * 3)

struct rfs_cache *rfs_cache_new(uint64_t budget)
{
    struct rfs_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    cache->table_size = 64;
    cache->table = calloc(cache->table_size, sizeof(struct rfs_piece *));
    cache->ghosts = calloc(RFS_GHOSTS, sizeof *cache->ghosts);
    if (!cache->table || !cache->ghosts) {
        free(cache->table);
        free(cache->ghosts);
        free(cache);
        return NULL;
    }
    cache->budget = budget;
    cache->probation_room = RFS_PROBATION_BYTES;
    cache->warm_most = WARM_MOST;
    pthread_mutex_init(&cache->lock, NULL);
    rfs_cancel_init_cond(&cache->done);
    rfs_slots_init(&cache->slots, budget);
    cache->mates = malloc((cache->slots.total + UINT64_C(1)) * sizeof(struct rfs_piece *));
    cache->unread_in = calloc(cache->slots.total + UINT64_C(1), sizeof *cache->unread_in);
    if (!cache->mates || !cache->unread_in) {
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
    free(cache->unread_in);
    rfs_slots_destroy(&cache->slots);
    pthread_cond_destroy(&cache->done);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

static void unpin(struct rfs_cache *cache, struct rfs_piece *piece, struct rfs_cache_later *later)
{
    if (--piece->pins > 0)
        return;
    if (piece->state == RFS_PIECE_READY)
        rfs_segment_rest(cache, piece);
    if (piece->state == RFS_PIECE_GONE)
        rfs_cache_dispose(cache, piece, later);
}

/* Releases the lock, then does the work that was put off. */
static void unlock(struct rfs_cache *cache, struct rfs_cache_later *later)
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

/* Secret data is guarded by slots. */
static uint32_t units_for(const struct rfs_cache *cache, size_t size)
{
    const size_t units = (size + RFS_UNIT_BYTES - 1) / RFS_UNIT_BYTES;
    return cache->slots.secret || units >= WHOLE_LEAST ? RFS_SLOT_UNITS : (uint32_t)units;
}

/* A piece to be filled, in the table and pinned; NULL when there is no room. */
static struct rfs_piece *claim(struct rfs_cache *cache, const struct rfs_piece_key *key,
                               size_t size, size_t max_files, struct rfs_cache_later *later)
{
    if (size > RFS_SLOT_BYTES || (cache->slots.secret && size < RFS_SECRET_LEAST))
        return NULL;
    const uint32_t units = units_for(cache, size);
    const uint64_t cost = RFS_PIECE_COST + max_files * sizeof(uint32_t);
    const uint64_t charge = units * RFS_UNIT_BYTES + cost;
    const struct rfs_ghost *ghost = rfs_ghost_find(cache, key);
    const bool returned = ghost && rfs_cache_return(cache, cache->clock - ghost->used, charge);
    rfs_cache_bound(cache, charge, later); /* the memory of one that goes is warm */
    if (!rfs_cache_make_room(cache, units, cost, later))
        return NULL;
    struct rfs_piece *piece = calloc(1, sizeof *piece);
    uint32_t *files = malloc((max_files > 0 ? max_files : 1) * sizeof *files);
    if (!piece || !files || !rfs_cache_take_memory(cache, piece, units)) {
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
    rfs_cache_insert(cache, piece);
    return piece;
}

/* Waits until a piece found in the table is no longer being filled. An rfs_cache_got or -errno. */
static int await(struct rfs_cache *cache, struct rfs_piece *piece, struct rfs_cache_later *later)
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
    rfs_segment_hit(cache, piece);
    return RFS_GOT_PIECE;
}

int rfs_cache_get(struct rfs_cache *cache, const struct rfs_piece_key *key, size_t size,
                  size_t max_files, enum rfs_cache_want want, struct rfs_piece **out)
{
    struct rfs_cache_later later = {0};
    int got = RFS_GOT_NOTHING;
    pthread_mutex_lock(&cache->lock);
    struct rfs_piece *piece = rfs_cache_find(cache, key);
    if (piece && want != RFS_WANT_ABSENT) {
        got = await(cache, piece, &later);
    } else if (!piece) {
        const bool missed = want == RFS_WANT_FOUND || want == RFS_WANT_MADE;
        cache->misses += missed;
        cache->regrets += missed && rfs_ghost_find(cache, key);
        if (want == RFS_WANT_MADE || (want == RFS_WANT_ABSENT && rfs_cache_has_room_ahead(cache)))
            piece = claim(cache, key, size, max_files, &later);
        if (piece)
            rfs_piece_set_unread(cache, piece, want == RFS_WANT_ABSENT);
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
    struct rfs_cache_later later = {0};
    pthread_mutex_lock(&cache->lock);
    if (rc == 0) {
        piece->state = RFS_PIECE_READY;
        cache->inserts++;
        rfs_segment_add(cache, piece, RFS_SEGMENT_PENDING);
    } else {
        rfs_cache_forget(cache, piece, rc);
        unpin(cache, piece, &later);
    }
    pthread_cond_broadcast(&cache->done);
    unlock(cache, &later);
}

void rfs_cache_unpin(struct rfs_cache *cache, struct rfs_piece *piece)
{
    struct rfs_cache_later later = {0};
    pthread_mutex_lock(&cache->lock);
    unpin(cache, piece, &later);
    unlock(cache, &later);
}

void rfs_cache_drop(struct rfs_cache *cache, struct rfs_piece *piece)
{
    pthread_mutex_lock(&cache->lock);
    if (piece->state == RFS_PIECE_READY)
        rfs_cache_forget(cache, piece, 0);
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
    struct rfs_cache_later later = {0};
    uint32_t slot = RFS_NO_SLOT;
    pthread_mutex_lock(&cache->lock);
    if (cache->slots.total > 0 && rfs_cache_make_room(cache, RFS_SLOT_UNITS, 0, &later))
        slot = rfs_cache_take_slot(cache);
    if (slot != RFS_NO_SLOT) {
        cache->bytes += RFS_SLOT_BYTES;
        cache->rooms++;
    }
    unlock(cache, &later);
    if (slot == RFS_NO_SLOT)
        return NULL;
    rfs_slots_guard(&cache->slots, slot);
    return rfs_slots_data(&cache->slots, slot);
}

void rfs_cache_give_room(struct rfs_cache *cache, void *room)
{
    pthread_mutex_lock(&cache->lock);
    cache->rooms--;
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
