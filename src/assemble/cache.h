/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces: at most BUDGET bytes of them. A piece is in the table from the moment somebody starts
 * assembling it, so that a second reader finds it and waits.
 *
 * New pieces are on trial: at most RFS_TRIAL_BYTES of them, the least recently used go first. One that
 * is asked for again after it was read to its end, or asked for very often, stays for as long as the
 * budget allows, least recently used first, after those on trial. So what several ranks share outlives
 * a file that is read once, and reading one through uses the same memory again and again: fresh
 * memory costs more than assembling does (a fault a page, 90 to 500 µs a MiB where it was measured).
 *
 * Threads: all functions but new and free. One lock; it is not held across I/O or copying. A thread
 * waits only for a piece whose assembling thread is running, and that one waits for no piece.
 */
#ifndef RFS_ASSEMBLE_CACHE_H
#define RFS_ASSEMBLE_CACHE_H

#include "assemble/slots.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RFS_TRIAL_BYTES (UINT64_C(64) << 20)

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
    bool proven;       /* beyond its trial */
    uint32_t hits;     /* while on trial */
    bool passing;      /* read ahead for one reader: forgotten when that has read it; constant */
    atomic_bool spent; /* somebody has read it to its end */
    uint64_t charge;   /* what it counts in the budget */
    uint32_t slot;     /* of the data, or RFS_NO_SLOT: from malloc */
    unsigned char *data;
};

struct rfs_cache;

struct rfs_cache *rfs_cache_new(uint64_t budget);
/* Nothing may be pinned. */
void rfs_cache_free(struct rfs_cache *cache);

enum rfs_cache_want {
    RFS_WANT_PASSED, /* only if it is there or on its way; not counted */
    RFS_WANT_FOUND,  /* the same, counted */
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
/* The last unpinning of a passing piece that is spent forgets it. */
void rfs_cache_unpin(struct rfs_cache *cache, struct rfs_piece *piece);
/* Takes a pinned piece out of the table, for it is stale, and unpins it. */
void rfs_cache_drop(struct rfs_cache *cache, struct rfs_piece *piece);

struct rfs_cache_counters {
    uint64_t bytes, hits, misses, evictions;
};
void rfs_cache_count(struct rfs_cache *cache, struct rfs_cache_counters *out);

#endif
