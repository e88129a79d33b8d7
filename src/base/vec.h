/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing arrays, struct { T *data; size_t n, cap; }, and bytes that are put together. Appending
 * costs amortised O(1); sizes are checked.
 */
#pragma once

#include "base/std.h"

#define RFS_VEC(T)                                                                                 \
    struct {                                                                                       \
        T *data;                                                                                   \
        size_t n, cap;                                                                             \
    }

/*
 * Makes room for MORE elements of SIZE bytes behind N. Returns false when out of memory; the data
 * stays valid.
 */
bool rfs_vec_reserve(void **data, size_t *cap, size_t n, size_t more, size_t size);

/* Makes room for one more element. */
static inline bool rfs_vec_grow(void **data, size_t *cap, size_t n, size_t size)
{
    return rfs_vec_reserve(data, cap, n, 1, size);
}

/* Makes room for MORE elements behind those that are there; false when out of memory. */
#define RFS_RESERVE(v, more)                                                                       \
    rfs_vec_reserve((void **)&(v)->data, &(v)->cap, (v)->n, (more), sizeof *(v)->data)

/* Appends; evaluates to false when out of memory. */
#define RFS_PUSH(v, ...)                                                                           \
    (((v)->n < (v)->cap || RFS_RESERVE(v, 1)) ? ((v)->data[(v)->n++] = (__VA_ARGS__), true) : false)

/*
 * Returns a pointer to element ID of a table by ids: those that are missing up to it become NONE.
 * NULL when out of memory.
 */
#define RFS_VEC_AT(v, id, none)                                                                    \
    ({                                                                                             \
        const size_t at_ = (id);                                                                   \
        while ((v)->n <= at_ && RFS_PUSH(v, none))                                                 \
            ;                                                                                      \
        (v)->n > at_ ? &(v)->data[at_] : NULL;                                                     \
    })

/*
 * Bytes that are put together one after the other. Begins as {0}. After a failure for want of
 * memory nothing more is added, and FAILED stays set: a caller may put many things and look once.
 */
struct rfs_bytes {
    unsigned char *data; /* owned; NULL while nothing was put */
    size_t n, cap;
    bool failed;
};

/*
 * Makes room for MORE bytes behind the N that are there, which are not counted yet. NULL when out
 * of memory.
 */
unsigned char *rfs_bytes_room(struct rfs_bytes *bytes, size_t more);
/*
 * Appends bytes. False when this or an earlier call has failed. Costs no call where there is room,
 * because millions of them put a few bytes.
 */
static inline bool rfs_bytes_put(struct rfs_bytes *bytes, const void *data, size_t n)
{
    if (n == 0)
        return !bytes->failed;
    const bool room = !bytes->failed && n <= bytes->cap - bytes->n;
    unsigned char *to = room ? bytes->data + bytes->n : rfs_bytes_room(bytes, n);
    if (!to)
        return false;
    memcpy(to, data, n);
    bytes->n += n;
    return true;
}
static inline bool rfs_bytes_put_text(struct rfs_bytes *bytes, const char *text)
{
    return rfs_bytes_put(bytes, text, strlen(text));
}
/* Appends a number in decimal. */
bool rfs_bytes_put_number(struct rfs_bytes *bytes, uint64_t number);
/* Frees the memory and empties *bytes. */
void rfs_bytes_free(struct rfs_bytes *bytes);
