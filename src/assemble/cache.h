/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces: at most BUDGET bytes, the least recently used ones that nobody holds go first. A piece is in
 * the table from the moment somebody starts assembling it, so that a second reader finds it and waits.
 *
 * Threads: all functions but new and free. One lock; it is not held across I/O or copying. A thread
 * waits only for a piece whose assembling thread is running, and that one waits for no piece.
 */
#ifndef RFS_ASSEMBLE_CACHE_H
#define RFS_ASSEMBLE_CACHE_H

#include "assemble/slots.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rfs_piece_key {
    uint64_t id[2];
    uint64_t number;
};

enum rfs_piece_state {
    RFS_PIECE_FILLING, /* its thread writes data; the others wait */
    RFS_PIECE_READY,
    RFS_PIECE_GONE, /* out of the table; freed with the last pin */
};

struct rfs_piece {
    struct rfs_piece_key key;
    struct rfs_piece *chain;         /* of the hash table */
    struct rfs_piece *newer, *older; /* of those that are ready */
    enum rfs_piece_state state;
    int rc; /* why it is gone */
    uint32_t pins;
    uint32_t n_files;
    uint32_t *files; /* that it was made from, each once; owned; constant once ready */
    size_t size;
    uint64_t charge; /* what it counts in the budget */
    uint32_t slot;   /* of the data, or RFS_NO_SLOT: from malloc */
    unsigned char *data;
};

struct rfs_cache;

struct rfs_cache *rfs_cache_new(uint64_t budget);
/* Nothing may be pinned. */
void rfs_cache_free(struct rfs_cache *cache);

enum rfs_cache_want {
    RFS_WANT_FOUND,  /* only if it is there or on its way */
    RFS_WANT_MADE,   /* and if not, the caller makes it */
    RFS_WANT_ABSENT, /* only if it is neither: the caller makes it ahead */
};
enum rfs_cache_got {
    RFS_GOT_NOTHING, /* it is not there, or must not be kept: there is no room */
    RFS_GOT_PIECE,   /* pinned, made some time ago: its files are to be checked */
    RFS_GOT_FRESH,   /* pinned, made after the call began */
    RFS_GOT_CLAIM,   /* pinned, to be filled: rfs_cache_publish must follow */
};

/* An rfs_cache_got, or -errno: the assembling that it waited for failed. */
int rfs_cache_get(struct rfs_cache *cache, const struct rfs_piece_key *key, size_t size,
                  size_t max_files, enum rfs_cache_want want, struct rfs_piece **out);
/* A claimed piece is ready (RC 0) and stays pinned, or failed: it is forgotten and unpinned. */
void rfs_cache_publish(struct rfs_cache *cache, struct rfs_piece *piece, int rc);
void rfs_cache_unpin(struct rfs_cache *cache, struct rfs_piece *piece);
/* Takes a pinned piece out of the table, for it is stale, and unpins it. */
void rfs_cache_drop(struct rfs_cache *cache, struct rfs_piece *piece);

struct rfs_cache_counters {
    uint64_t bytes, hits, misses, evictions;
};
void rfs_cache_count(struct rfs_cache *cache, struct rfs_cache_counters *out);

#endif
