/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bump allocator: many small objects, freed together. Not thread-safe: its owner locks. Costs at
 * most one partly used chunk beyond the requested bytes: 1 KiB, then as much as is there, up to 64
 * KiB. Begins as {0}.
 */
#pragma once

#include "base/std.h"

struct rfs_arena {
    struct rfs_arena_chunk *chunks;
    size_t bytes; /* allocated from the system */
};

/* Allocates memory aligned for any object; NULL when out of memory. */
void *rfs_arena_alloc(struct rfs_arena *arena, size_t size);
/*
 * Enlarges P, of SIZE bytes, to MORE bytes: in place, if it is large and among the last ones to be
 * allocated, else as a copy, and what P took is lost until the arena is freed. P may be NULL, SIZE
 * 0 then.
 */
void *rfs_arena_grow(struct rfs_arena *arena, void *p, size_t size, size_t more);
/* Copies a text, with a NUL behind it; NULL when out of memory. */
char *rfs_arena_text(struct rfs_arena *arena, const char *text, size_t length);
void rfs_arena_free(struct rfs_arena *arena);
