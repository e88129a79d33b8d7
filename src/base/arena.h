/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bump allocator: many small objects, freed together. Not thread-safe: its owner locks. Costs at
 * most one partly used chunk beyond the requested bytes: 1 KiB, then as much as is there, up to 64
 * KiB. Begins as {0}. After a failure for want of memory FAILED stays set: a caller may make many
 * objects and look once.
 */
#pragma once

#include "base/std.h"

struct rfs_arena {
    struct rfs_arena_chunk *chunks;
    size_t bytes; /* allocated from the system */
    bool failed;
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
/* Prints a text as asprintf does; NULL when out of memory. */
char *rfs_arena_printf(struct rfs_arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
char *rfs_arena_vprintf(struct rfs_arena *arena, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));
/* Allocates N objects of SIZE bytes, all zeros; NULL when out of memory. */
void *rfs_arena_zeros(struct rfs_arena *arena, size_t n, size_t size);
void rfs_arena_free(struct rfs_arena *arena);

/* Makes room for one more element behind N; false when out of memory. */
bool rfs_arena_reserve(struct rfs_arena *arena, void **data, size_t *cap, size_t n, size_t size);
/* Appends to a vector (base/vec.h) that lies in an arena; nothing when out of memory. */
#define RFS_ADD(arena, v, ...)                                                                     \
    ((void)(((v)->n < (v)->cap || rfs_arena_reserve((arena), (void **)&(v)->data, &(v)->cap,       \
                                                    (v)->n, sizeof *(v)->data)) &&                 \
            ((v)->data[(v)->n++] = (__VA_ARGS__), true)))
/* Does what RFS_VEC_AT does, in an arena. */
#define RFS_ADD_AT(arena, v, id, none)                                                             \
    ({                                                                                             \
        const size_t at_ = (id);                                                                   \
        while ((v)->n <= at_ && !(arena)->failed)                                                  \
            RFS_ADD(arena, v, none);                                                               \
        (v)->n > at_ ? &(v)->data[at_] : NULL;                                                     \
    })
