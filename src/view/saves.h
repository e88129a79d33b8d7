/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several saves side by side (step=all): a view whose root has a folder EPOCH_STEP for each save,
 * with the contents of the view of that save alone. Each is a plain view; the id of its entry is
 * that of the alone one with the number of the save, from 1 up, in the bits from RFS_SAVE_SHIFT up.
 * They share the pool, the descriptors and, in equal parts, the budget of the cache.
 */
#pragma once

#include "view/internal.h"

#define RFS_SAVE_SHIFT 48
#define RFS_SAVES_MOST 4096

/* EPOCH_STEP */
void rfs_save_name(const struct rfs_save *save, char out[48]);

/*
 * Opens the view of each save in SOURCE. One that cannot be opened is left out with a line in the
 * log, unless the view is strict; there is one at least.
 */
int rfs_saves_open(struct reshard_view *set, const char *source, struct rfs_error *err);

/* The plain view that ID belongs to; NULL for entries above the saves. */
static inline struct rfs_view *rfs_view_pick(const struct reshard_view *set, uint64_t id)
{
    const uint64_t number = id >> RFS_SAVE_SHIFT;

    return !set->several                    ? set->data[0]
           : number > 0 && number <= set->n ? set->data[number - 1]
                                            : NULL;
}

/*
 * The folders that have one for each save, as the public functions: the root, and the hidden one of
 * tensors.
 */
int rfs_saves_lookup(const struct reshard_view *set, uint64_t parent, const char *name,
                     uint64_t *id);
int rfs_saves_list(const struct reshard_view *set, uint64_t dir, uint64_t position,
                   reshard_dirent *full);
int rfs_saves_stat(const struct reshard_view *set, uint64_t id, reshard_stat *full,
                   struct rfs_error *err);
