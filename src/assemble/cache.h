/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches pieces: at most BUDGET bytes of them, of the memory that freed ones leave for the next,
 * and of rooms that others take. A piece is in the table from the moment its assembly starts, so
 * that a second reader finds it and waits.
 *
 * The piece that was used least recently goes first. Pieces that were not read to their end go
 * after those that were, unless they take a quarter of the budget: so data that was read ahead
 * stays until its reader comes.
 *
 * Pieces that were read to their end take RFS_CACHE_READ_BYTES at first, so that reading a file
 * through uses the same memory again and again: fresh memory costs more than assembling does, a
 * fault a page, 90 to 500 us a MiB where it was measured. Each request for such a piece that
 * has gone gives them twice its bytes more, until they may take the whole budget.
 *
 * Threads: all functions but new and free. One lock; it is not held across I/O or copying. A thread
 * waits only for a piece whose assembling thread is running, and that one waits for no piece.
 */
#pragma once

#include "base/std.h"

#include <stdatomic.h>

/* The most bytes of a piece; longer ones are not cached. */
#define RFS_CACHE_PIECE_BYTES ((size_t)1 << 20)
#define RFS_CACHE_READ_BYTES (UINT64_C(16) << 20)
/* The most shorter pieces: each takes a mapping, and the system has 65,530 of these. */
#define RFS_CACHE_SHORT_MOST 16384

struct rfs_cache_key {
    uint64_t id[2];
    uint64_t number;
};

enum rfs_piece_state {
    RFS_PIECE_FILLING, /* one thread writes its data; the others wait */
    RFS_PIECE_READY,
    RFS_PIECE_GONE, /* out of the table; freed with the last pin */
};

struct rfs_cache_piece {
    struct rfs_cache_key key;
    struct rfs_cache_piece *chain;         /* next in its bucket of the hash table */
    struct rfs_cache_piece *newer, *older; /* neighbours by last use, once it is ready */
    enum rfs_piece_state state;
    int rc; /* reason why it is gone */
    uint32_t pins;
    uint32_t n_files;
    uint32_t *files; /* files that it was made from, each once; owned; constant once ready */
    size_t size;
    bool passing; /* read ahead for one reader: forgotten when that has read it; constant */
    bool unread;  /* made ahead, and not requested yet */
    bool read;    /* in the list of those that were read to their end */
    atomic_bool read_through; /* read to its end */
    uint64_t charge;          /* bytes on the budget */
    unsigned char *data;      /* owned */
};

struct rfs_cache;

/* Makes an empty cache of BUDGET bytes; returns NULL when out of memory. */
struct rfs_cache *rfs_cache_new(uint64_t budget);
/* Frees the cache; nothing may be pinned. */
void rfs_cache_free(struct rfs_cache *cache);

enum rfs_cache_want {
    RFS_WANT_PASSED, /* get it if it is cached or being made; do not count the request */
    RFS_WANT_FOUND,  /* get it if it is cached or being made; count the request */
    RFS_WANT_MADE,   /* get it, or claim it; count the request */
    RFS_WANT_ABSENT, /* claim it, to be made ahead, only if it is neither cached nor being made, and
                        its reader has not passed it */
};
enum rfs_cache_got {
    RFS_GOT_NOTHING, /* nothing is cached, or there is no room for the piece */
    RFS_GOT_PIECE,   /* pinned, made by another thread: check its files before using it */
    RFS_GOT_CLAIM,   /* pinned, to be filled: rfs_cache_publish must follow */
};

/*
 * Returns an rfs_cache_got, or the -errno of the assembling that it waited for. *PASSED is for
 * RFS_WANT_ABSENT, and NULL else: a reader that sets it before its own call finds the piece there,
 * or no later call claims it for this job.
 */
int rfs_cache_get(struct rfs_cache *cache, const struct rfs_cache_key *key, size_t size,
                  size_t max_files, enum rfs_cache_want want, const atomic_bool *passed,
                  struct rfs_cache_piece **out);
/*
 * Publishes a claimed piece. With RC 0 it is ready and stays pinned; else it is forgotten and
 * unpinned, and waiting threads get RC, or RFS_GOT_NOTHING if RC is RFS_PUBLISH_NOTHING.
 */
#define RFS_PUBLISH_NOTHING 1
void rfs_cache_publish(struct rfs_cache *cache, struct rfs_cache_piece *piece, int rc);
/* Unpins a piece. The last unpinning of a passing piece that was read to its end forgets it. */
void rfs_cache_unpin(struct rfs_cache *cache, struct rfs_cache_piece *piece);
/* Takes a pinned piece out of the table, because it is stale. */
void rfs_cache_drop(struct rfs_cache *cache, struct rfs_cache_piece *piece);

/*
 * Announces that PIECES will be claimed at once, again and again: from now on the memory of as many
 * that went stays for the next ones.
 */
void rfs_cache_keep_warm(struct rfs_cache *cache, uint64_t pieces);

/*
 * Takes RFS_CACHE_PIECE_BYTES of memory for other use, counted in the budget, with undefined
 * content; release it by rfs_cache_give_room. Returns NULL when there is no room.
 */
void *rfs_cache_take_room(struct rfs_cache *cache);
/* Gives back memory that rfs_cache_take_room gave. */
void rfs_cache_give_room(struct rfs_cache *cache, void *room);

/* Sets the budget, within that of rfs_cache_new, and drops pieces beyond it that are not pinned. */
void rfs_cache_limit(struct rfs_cache *cache, uint64_t budget);

struct rfs_cache_counters {
    uint64_t bytes, hits, misses, evictions;
    uint64_t inserts;
    uint64_t regrets; /* misses of pieces that were dropped not long ago */
    uint64_t unread;  /* pieces that were made ahead and evicted before they were requested */
};
/* Copies the counters. */
void rfs_cache_count(struct rfs_cache *cache, struct rfs_cache_counters *out);
