/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include "base/checked.h"

enum { FIRST_BYTES = 1 << 10, CHUNK_BYTES = 64 << 10, CHUNKS_BACK = 256 };

/* The first chunk of the list is the one that is filled. */
struct rfs_arena_chunk {
    struct rfs_arena_chunk *next;
    size_t used, cap; /* bytes of room */
    max_align_t room[];
};

static struct rfs_arena_chunk *new_chunk(struct rfs_arena *arena, size_t cap)
{
    struct rfs_arena_chunk *chunk;
    size_t bytes;

    chunk = rfs_add_size(sizeof *chunk, cap, &bytes) ? malloc(bytes) : NULL;
    if (!chunk) {
        arena->failed = true;
        return NULL;
    }
    chunk->next = NULL;
    chunk->used = 0;
    chunk->cap = cap;
    arena->bytes += bytes;
    return chunk;
}

/* Allocates a chunk of its own, behind the one that is being filled, which stays in use. */
static void *alloc_apart(struct rfs_arena *arena, size_t size)
{
    struct rfs_arena_chunk *chunk = new_chunk(arena, size);

    if (!chunk)
        return NULL;
    chunk->used = size;
    if (arena->chunks) {
        chunk->next = arena->chunks->next;
        arena->chunks->next = chunk;
    } else {
        arena->chunks = chunk;
    }
    return chunk->room;
}

/*
 * Returns the bytes of the next chunk to be filled, with room for SIZE: as many as there are
 * already, so that the many arenas of a few names stay small.
 */
static size_t next_bytes(const struct rfs_arena *arena, size_t size)
{
    const uint64_t bytes = rfs_min_u64(rfs_max_u64(arena->bytes, FIRST_BYTES), CHUNK_BYTES);

    return (size_t)rfs_max_u64(bytes, size + sizeof(struct rfs_arena_chunk));
}

void *rfs_arena_alloc(struct rfs_arena *arena, size_t size)
{
    const size_t align = _Alignof(max_align_t);
    struct rfs_arena_chunk *chunk = arena->chunks;
    size_t rounded;
    void *p;

    if (size > PTRDIFF_MAX || !rfs_add_size(size, align - 1, &rounded)) {
        arena->failed = true;
        return NULL;
    }
    rounded &= ~(align - 1);
    if (rounded == 0)
        rounded = align; /* so that two objects never share an address */
    if (rounded > CHUNK_BYTES / 4)
        return alloc_apart(arena, rounded);
    if (!chunk || chunk->cap - chunk->used < rounded) {
        chunk = new_chunk(arena, next_bytes(arena, rounded) - sizeof *chunk);
        if (!chunk)
            return NULL;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    p = (char *)chunk->room + chunk->used;
    chunk->used += rounded;
    return p;
}

void *rfs_arena_grow(struct rfs_arena *arena, void *p, size_t size, size_t more)
{
    const bool may_be_alone = size > CHUNK_BYTES / 4;
    struct rfs_arena_chunk **slot = &arena->chunks;

    /* Chunks of their own lie behind those that were begun since the block last grew. */
    for (unsigned i = 0; may_be_alone && i < CHUNKS_BACK && *slot && (*slot)->room != p; i++)
        slot = &(*slot)->next;
    struct rfs_arena_chunk *chunk = *slot;
    size_t bytes;
    if (may_be_alone && chunk && chunk->room == p && more <= PTRDIFF_MAX &&
        rfs_add_size(sizeof *chunk, more, &bytes)) {
        struct rfs_arena_chunk *moved = realloc(chunk, bytes);
        if (!moved) {
            arena->failed = true;
            return NULL;
        }
        arena->bytes += more - moved->cap;
        moved->used = moved->cap = more;
        *slot = moved;
        return moved->room;
    }
    void *copy = rfs_arena_alloc(arena, more);
    if (copy && size > 0)
        memcpy(copy, p, size);
    return copy;
}

char *rfs_arena_text(struct rfs_arena *arena, const char *text, size_t length)
{
    char *copy = rfs_arena_alloc(arena, length < SIZE_MAX ? length + 1 : length);

    if (!copy)
        return NULL;
    if (length > 0)
        memcpy(copy, text, length);
    copy[length] = 0;
    return copy;
}

char *rfs_arena_vprintf(struct rfs_arena *arena, const char *fmt, va_list args)
{
    va_list again;

    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *text = rfs_arena_alloc(arena, n < 0 ? SIZE_MAX : (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, args);
    return text;
}

char *rfs_arena_printf(struct rfs_arena *arena, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    char *text = rfs_arena_vprintf(arena, fmt, args);
    va_end(args);
    return text;
}

void *rfs_arena_zeros(struct rfs_arena *arena, size_t n, size_t size)
{
    size_t bytes;
    void *zeros = rfs_arena_alloc(arena, rfs_mul_size(n, size, &bytes) ? bytes : SIZE_MAX);

    return zeros ? memset(zeros, 0, bytes) : NULL;
}

bool rfs_arena_reserve(struct rfs_arena *arena, void **data, size_t *cap, size_t n, size_t size)
{
    const size_t more = n < 8 ? 8 : 2 * n;
    size_t bytes;
    void *grown =
        rfs_arena_grow(arena, *data, n * size, rfs_mul_size(more, size, &bytes) ? bytes : SIZE_MAX);

    if (!grown)
        return false;
    *data = grown;
    *cap = more;
    return true;
}

void rfs_arena_free(struct rfs_arena *arena)
{
    struct rfs_arena_chunk *chunk = arena->chunks;

    while (chunk) {
        struct rfs_arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    *arena = (struct rfs_arena){0};
}
