/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interned byte strings: equal bytes have the same 32-bit id, from 0 up, in the order of first
 * appearance. Ids are never freed before the table. Interning takes the table's lock (a leaf lock);
 * rfs_intern_bytes is lock-free for any id that another thread handed over properly.
 * Cost: the bytes + 27 to 37 bytes each, and up to 16 for items that are not used yet. Finding an
 * id reads one or two lines of slots, and its item and bytes.
 */
#pragma once

#include "base/std.h"

#define RFS_NO_ID UINT32_MAX

struct rfs_intern;

struct rfs_intern *rfs_intern_new(void);
void rfs_intern_free(struct rfs_intern *table);

/* Returns the id of bytes, or RFS_NO_ID when out of memory (or of ids). */
uint32_t rfs_intern_add(struct rfs_intern *table, const void *bytes, size_t length);
/*
 * Interns bytes, and returns true to the first thread that does so. Also returns true when out of
 * memory, so that a message may come twice, but never stays away.
 */
bool rfs_intern_is_new(struct rfs_intern *table, const void *bytes, size_t length);
/* Returns the id of bytes seen before, or RFS_NO_ID. */
uint32_t rfs_intern_find(struct rfs_intern *table, const void *bytes, size_t length);

/* Returns the bytes of an id: valid as long as the table, aligned to 8, with a NUL behind them. */
const void *rfs_intern_bytes(const struct rfs_intern *table, uint32_t id, size_t *length);
static inline const char *rfs_intern_text(const struct rfs_intern *table, uint32_t id)
{
    return (const char *)rfs_intern_bytes(table, id, NULL);
}
uint32_t rfs_intern_count(struct rfs_intern *table);
size_t rfs_intern_memory(struct rfs_intern *table);
