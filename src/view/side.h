/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several saves side by side (step=all): a view whose root has a folder EPOCH_STEP for each save, and in it
 * what the view of that save alone would show. Each is a view of its own; the id of its entry is that of
 * the alone one with the number of the save, from 1 up, in the bits from RFS_SIDE_SHIFT up. They share the
 * pool, the descriptors and, in equal parts, the budget of the cache.
 */
#ifndef RFS_VIEW_SIDE_H
#define RFS_VIEW_SIDE_H

#include "view/internal.h"

#include "source/io/fds.h"
#include "source/scan/scan.h"

#define RFS_SIDE_SHIFT 48
#define RFS_SIDE_MOST 4096 /* saves */

struct rfs_side_save {
    char name[48];         /* EPOCH_STEP */
    reshard_config config; /* of the whole, which gets the log with the name before each line */
    struct reshard_view *view;
};

struct rfs_side {
    struct rfs_side_save *data; /* by number - 1; owned, with their views */
    size_t n;
    struct rfs_fds fds;
    bool has_fds;
};

/*
 * Opens the view of each save in SOURCE. One that cannot be opened is left out with a line in the log, unless the
 * view is strict; there is one at least.
 */
int rfs_side_open(struct reshard_view *view, const char *source, const char *options,
                  struct rfs_error *err);
/* Also when opening failed. */
void rfs_side_close(struct reshard_view *view);

/* The view that ID belongs to: of a save, or VIEW itself. */
static inline struct reshard_view *rfs_side_pick(struct reshard_view *view, uint64_t id)
{
    const uint64_t number = id >> RFS_SIDE_SHIFT;
    return view->side && number > 0 && number <= view->side->n ? view->side->data[number - 1].view
                                                               : view;
}

/* Of the root of a view with saves: as reshard_lookup, and an entry as of reshard_list. */
int rfs_side_lookup(const struct reshard_view *view, const char *name, uint64_t *id);
bool rfs_side_list(const struct reshard_view *view, uint64_t position, reshard_dirent *full);

#endif
