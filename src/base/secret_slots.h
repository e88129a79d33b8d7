/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small pieces of guarded memory (secret.h), for another library that keeps part of a key for a
 * moment. There is one room for the whole process, as the other library's allocator is.
 *
 * Threads: all functions but open, under a leaf lock.
 */
#pragma once

#include "base/std.h"

#define RFS_SLOT_BYTES 4096u
#define RFS_SLOTS 256u

/* False when out of memory. */
bool rfs_slots_open(void);
/*
 * Memory of at least N bytes, NULL when N is larger than a slot or no slot is free; its pages are
 * locked, if they can be.
 */
void *rfs_slots_take(size_t n);
bool rfs_slots_has(const void *at);
/* Wipes it. AT is one that rfs_slots_has. */
void rfs_slots_give(void *at);
