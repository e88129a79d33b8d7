/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the cache only. All of it is under the cache's lock. */
#pragma once

#include "assemble/cache.h"

/* Bytes of malloc and of the table for a piece, beyond its struct. */
#define RFS_PIECE_COST (sizeof(struct rfs_piece) + 64)

/* Entries of the ghost list; one for each of as many MiB. */
#define RFS_GHOSTS 16384

/* A piece that was evicted; a newer one takes the place of an older. */
struct rfs_ghost {
    uint64_t hash; /* of its key; 0: none */
    uint64_t used; /* when it was last requested, by the cache's clock */
};

/* Pieces of a segment, by last use. */
struct rfs_lru {
    struct rfs_piece *newest, *oldest;
    uint64_t bytes; /* their charges */
};

struct rfs_cache {
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t done;  /* a piece stopped being filled */
    uint64_t budget;
    /* Charges of all pieces that are not freed, warm slots, and free units of cut ones. */
    uint64_t bytes;
    struct rfs_piece **table;
    size_t table_size; /* a power of two */
    size_t n;          /* pieces in the table */
    struct rfs_lru segments[RFS_SEGMENT_COUNT];
    struct rfs_ghost *ghosts; /* [RFS_GHOSTS], by hash */
    uint64_t clock;           /* charges of all pieces that were ever read to their end */
    uint64_t probation_room;  /* bytes that the probation segment may take */
    uint64_t warm_most;       /* slots that stay warm when nothing needs them */
    uint32_t refused;         /* pieces that were not made ahead, for want of room */
    uint32_t rooms;           /* slots that rfs_cache_take_room gave: as many more may stay warm */
    struct rfs_slots slots;
    struct rfs_piece **mates; /* [total slots] pieces of a slot that is cut; of others undefined */
    uint8_t *unread_in;       /* [total slots] how many of these are unread */
    uint32_t unread_slots;    /* slots that are cut in which some are */
    uint64_t hits, misses, evictions, inserts, regrets, unread;
};

/* Work that a call found under the lock and does when it is released. */
struct rfs_cache_later {
    struct rfs_piece *free; /* by chain */
    uint32_t n_cool;
    uint32_t cool[4];
};

/* ---- cache_table.c: the pieces by key, and the ghost list ---- */

struct rfs_piece *rfs_cache_find(const struct rfs_cache *cache, const struct rfs_piece_key *key);
void rfs_cache_insert(struct rfs_cache *cache, struct rfs_piece *piece);
void rfs_cache_remove(struct rfs_cache *cache, struct rfs_piece *piece);
/* NULL for a piece that was not here, or went too long ago. */
const struct rfs_ghost *rfs_ghost_find(const struct rfs_cache *cache,
                                       const struct rfs_piece_key *key);
void rfs_ghost_leave(struct rfs_cache *cache, const struct rfs_piece *piece);

/* ---- cache_policy.c: the segments ---- */

void rfs_segment_add(struct rfs_cache *cache, struct rfs_piece *piece, enum rfs_segment segment);
/* Whether the piece, which has its memory, is made ahead and nobody has asked for it yet. */
void rfs_piece_set_unread(struct rfs_cache *cache, struct rfs_piece *piece, bool unread);
/* A piece was found and is ready. */
void rfs_segment_hit(struct rfs_cache *cache, struct rfs_piece *piece);
/* The last pin of a ready piece was released. */
void rfs_segment_rest(struct rfs_cache *cache, struct rfs_piece *piece);
/* Out of the table and its segment. Those that wait for it get RC. */
void rfs_cache_forget(struct rfs_cache *cache, struct rfs_piece *piece, int rc);
/* Whether there is room to make a piece ahead. */
bool rfs_cache_has_room_ahead(struct rfs_cache *cache);
/*
 * Called when a piece that was evicted AWAY bytes of the clock ago, and takes CHARGE, is requested
 * again: gives the probation segment more room. Returns whether the piece is to be protected once
 * it was read.
 */
bool rfs_cache_return(struct rfs_cache *cache, uint64_t away, uint64_t charge);
/* Keeps the probation segment, with CHARGE more, within its room. */
void rfs_cache_bound(struct rfs_cache *cache, uint64_t charge, struct rfs_cache_later *later);
/*
 * Evicts the piece whose turn it is, and more of its slot where UNITS need that. False: there is
 * none.
 */
bool rfs_cache_evict(struct rfs_cache *cache, uint32_t units, struct rfs_cache_later *later);

/* ---- cache_memory.c: slots, and the charges on the budget ---- */

/* Whether UNITS can be had of memory that is counted already. */
bool rfs_cache_is_counted(const struct rfs_cache *cache, uint32_t units);
/* Makes room in the budget for UNITS, which may be counted already, and for COST. */
bool rfs_cache_make_room(struct rfs_cache *cache, uint32_t units, uint64_t cost,
                         struct rfs_cache_later *later);
/* One more warm slot is to be given back to the system; false when LATER has enough of them. */
bool rfs_cache_cool(struct rfs_cache *cache, struct rfs_cache_later *later);
/* A slot, which is not counted any more; RFS_NO_SLOT: none. */
uint32_t rfs_cache_take_slot(struct rfs_cache *cache);
/*
 * Memory for the piece, which is to be charged: of a slot that is cut if there is some, else of one
 * that is not yet.
 */
bool rfs_cache_take_memory(struct rfs_cache *cache, struct rfs_piece *piece, uint32_t units);
/* Frees a forgotten piece without pins. */
void rfs_cache_dispose(struct rfs_cache *cache, struct rfs_piece *piece,
                       struct rfs_cache_later *later);
