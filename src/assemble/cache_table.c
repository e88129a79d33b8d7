/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces by key, and the ghost list. */
#include "assemble/cache_internal.h"

/* Ids are hashes already; consecutive numbers take consecutive places. */
static struct rfs_piece **place_of(const struct rfs_cache *cache, const struct rfs_piece_key *key)
{
    return &cache->table[(key->id[0] + key->number) & (cache->table_size - 1)];
}

static bool same_key(const struct rfs_piece_key *a, const struct rfs_piece_key *b)
{
    return a->id[0] == b->id[0] && a->id[1] == b->id[1] && a->number == b->number;
}

struct rfs_piece *rfs_cache_find(const struct rfs_cache *cache, const struct rfs_piece_key *key)
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

void rfs_cache_insert(struct rfs_cache *cache, struct rfs_piece *piece)
{
    if (cache->n >= cache->table_size)
        grow_table(cache);
    struct rfs_piece **place = place_of(cache, &piece->key);
    piece->chain = *place;
    *place = piece;
    cache->n++;
}

void rfs_cache_remove(struct rfs_cache *cache, struct rfs_piece *piece)
{
    struct rfs_piece **place = place_of(cache, &piece->key);
    while (*place != piece)
        place = &(*place)->chain;
    *place = piece->chain;
    cache->n--;
}

/* Never 0. Ids are hashes already. */
static uint64_t hash_of(const struct rfs_piece_key *key)
{
    return (key->id[0] ^ (key->number * UINT64_C(0x9e3779b97f4a7c15))) | 1;
}

const struct rfs_ghost *rfs_ghost_find(const struct rfs_cache *cache,
                                       const struct rfs_piece_key *key)
{
    const uint64_t hash = hash_of(key);
    const struct rfs_ghost *ghost = &cache->ghosts[hash / 2 % RFS_GHOSTS];
    return ghost->hash == hash ? ghost : NULL;
}

void rfs_ghost_leave(struct rfs_cache *cache, const struct rfs_piece *piece)
{
    const uint64_t hash = hash_of(&piece->key);
    cache->ghosts[hash / 2 % RFS_GHOSTS] = (struct rfs_ghost){hash, piece->used};
}
