/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows a source whose saves come and go: reshard_look in reshard.h says what is shown when.
 *
 * Each save that is shown is a plain view with the next free number, which is never used again. So
 * ids that a caller still has are never those of another save. A view is freed by the first look
 * after its last user has left; a look is made by one thread at a time, in a call or in the pool.
 *
 * Memory: 8 bytes for each number, about 150 for each save that was ever there, and the views of
 * those that are shown, wait to be shown, or are still open.
 */
#pragma once

#include "view/internal.h"

/* Ids stay below those of the caller's own entries. */
#define RFS_FOLLOW_MOST ((UINT64_C(1) << (62 - RFS_VIEW_SAVE_SHIFT)) - 1)
#define RFS_FOLLOW_LATEST UINT64_C(2) /* the id of RESHARD_LATEST: no save's, nor the root's */

/* Begins to follow SOURCE, and looks once. 0 or -errno with *err filled. */
int rfs_follow_open(struct reshard_view *set, const char *source, struct rfs_error *err);
/* Frees what waits to be shown; the set's own plain views are the caller's. NULL is fine. */
void rfs_follow_close(struct rfs_follow *follow);
/* Returns the path that is followed. */
const char *rfs_follow_source(const struct rfs_follow *follow);
/* Copies the name of the newest save. False when there is none. */
bool rfs_follow_latest(struct reshard_view *set, char name[48]);
