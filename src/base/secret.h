/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guards memory for keys: it is left out of core files, kept from the swap as far as the limits
 * allow (RLIMIT_MEMLOCK), and wiped before it is given back to the system.
 *
 * Threads: all functions but harden and slots_open. A lock on memory does not last over a fork: the
 * child locks again what it needs.
 */
#pragma once

#include "base/error.h"

/*
 * Prevents core files, and access to the memory of the process by other processes of the user, such
 * as debuggers: neither it nor its children are dumpable. To be called before a key is read. 0, or
 * -errno with *err filled.
 */
int rfs_secret_harden(struct rfs_error *err);

/* Maps whole pages, zeroed, and guards them. NULL when out of memory. */
void *rfs_secret_map(size_t bytes);
/* Wipes and unmaps pages. Does nothing with NULL. */
void rfs_secret_unmap(void *at, size_t bytes);

/*
 * Keeps pages out of core files and locks them; they are backed by memory afterwards. 0, or -errno
 * when they cannot be locked; they are used all the same.
 */
int rfs_secret_guard(void *at, size_t bytes);

/* Overwrites bytes; compilers do not remove it. */
void rfs_secret_wipe(void *at, size_t bytes);

/*
 * Slots are small pieces of guarded memory, for another library that keeps part of a key for a
 * moment. The process has one room for them, as the other library has one allocator. A leaf lock
 * guards the free slots.
 */
#define RFS_SECRET_SLOT_BYTES 4096u
#define RFS_SECRET_SLOTS 256u

/* Makes the room, once. False when out of memory. */
bool rfs_secret_slots_open(void);
/*
 * Takes a slot for N bytes. NULL when N is larger than a slot or none is free; its pages are
 * locked, if they can be.
 */
void *rfs_secret_slots_take(size_t n);
/* Returns whether AT is a slot. */
bool rfs_secret_slots_has(const void *at);
/* Wipes a slot and gives it back. */
void rfs_secret_slots_give(void *at);
