/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates memory for the content of checkpoints: whole pages, which core files leave out. Once a
 * view with a key was opened, this memory is wiped before the system gets it back.
 *
 * Threads: all functions.
 */
#pragma once

#include "base/std.h"

#define RFS_HUGE_PAGE ((size_t)2 << 20) /* bytes */

/* Has all content wiped that is freed from now on, as some of it is decrypted. */
void rfs_pages_wipe_all(void);

/*
 * Returns zeroed memory that begins with a page, or NULL when out of memory. The system backs it
 * when it is used, by huge pages where it is long enough for them.
 */
void *rfs_pages_alloc(size_t bytes);
/*
 * Gives a part of it, in whole pages, back to the system: the addresses stay, and the content does
 * not.
 */
void rfs_pages_release(void *at, size_t bytes);
/*
 * Has the system back memory of a caller, which is about to be filled, at once rather than page by
 * page, if it is fresh: if its first, middle and last pages are not there. What it holds stays. Is
 * advice, which older systems than Linux 5.14 do not take.
 */
void rfs_pages_expect(void *at, size_t bytes);
/* Frees what rfs_pages_alloc returned, or whole pages of it. Does nothing with NULL. */
void rfs_pages_free(void *at, size_t bytes);
