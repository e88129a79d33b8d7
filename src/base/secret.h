/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for secrets: keys, and the plain text of encrypted files. It is left out of
 * core files, kept from the swap as far as the limits allow (RLIMIT_MEMLOCK), and wiped before it
 * is given back to the system.
 *
 * Threads: all functions. A lock on memory does not last over a fork: the child locks again what it
 * needs.
 */
#pragma once

#include "base/log.h"

#include <stdatomic.h>

/* The owner of secrets: remembers that a failure to lock was logged. Owns nothing. */
struct rfs_secret {
    struct rfs_log *log; /* borrowed; may be NULL */
    atomic_bool logged;
};

/* Whole pages, zeroed, guarded as below; NULL when out of memory. */
void *rfs_secret_map(struct rfs_secret *secret, size_t bytes);
/* Wipes them first. Does nothing with NULL. */
void rfs_secret_unmap(void *at, size_t bytes);

/*
 * Keeps these pages out of core files and locks them; memory behind them is there afterwards. The
 * first failure to lock is logged; unlocked memory is used all the same. Returns whether it is
 * locked.
 */
bool rfs_secret_guard(struct rfs_secret *secret, void *at, size_t bytes);
/* Wipes and unlocks pages that stay mapped. */
void rfs_secret_release(void *at, size_t bytes);

/* Overwrites bytes; compilers do not remove it. */
void rfs_wipe(void *at, size_t bytes);
