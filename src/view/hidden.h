/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hidden folder: .reshardfs/tensors/rank_N/NAME.npy and NAME.json, and tensors/full likewise
 * with whole tensors; in a view of several saves, tensors/EPOCH_STEP/ has those of each. It is
 * found by name and in no list of the root's. In a flat view there is "full" alone; of hfai's parts
 * it has the model's tensors, and of several models there are model_0 and so on.
 *
 * Ids are computed: RFS_HIDDEN_BIT is set in those of the hidden folder, then come the number of a
 * group (a folder below tensors) and that of an entry in it. All of it is made on demand: a rank is
 * planned when its folder is listed, or a name is looked up in it; a file is encoded when it is
 * opened or stat'ed, and forgotten when it is closed. What stays are the names of files that were
 * listed (once for all ranks), and the planner of whole tensors.
 *
 * Threads: all functions but end.
 */
#pragma once

#include "view/internal.h"

#define RFS_HIDDEN_BIT (UINT64_C(1) << 47)

#define RFS_HIDDEN_TOP RFS_HIDDEN_BIT            /* .reshardfs, the set's: no save has one */
#define RFS_HIDDEN_TENSORS (RFS_HIDDEN_BIT | 1u) /* tensors in there; a save's, with its base */
#define RFS_HIDDEN_TENSORS_NAME "tensors"
#define RFS_HIDDEN_GROUPS ((UINT32_C(1) << 22) - 2) /* more are not shown */

/* The object of an id in the hidden folder. */
struct rfs_view_hidden_object {
    enum {
        RFS_VIEW_HIDDEN_NONE,
        RFS_VIEW_HIDDEN_TENSORS, /* the folder of that name, which has the groups */
        RFS_VIEW_HIDDEN_GROUP,
        RFS_VIEW_HIDDEN_FILE,
    } kind;
    uint32_t group;
    uint32_t target; /* position of a file's tensor in the parameter list */
    bool about;      /* it is the JSON file */
};

/* Returns whether ID is one of the hidden folder's, or could be. */
static inline bool rfs_view_hidden_owns(const struct rfs_view *view, uint64_t id)
{
    return ((id - view->save.base) & RFS_HIDDEN_BIT) != 0;
}

struct rfs_view_hidden_object rfs_view_hidden_find(const struct rfs_view *view, uint64_t id);

/*
 * Returns what reshard_is_ready does; false for a JSON file, since making one takes longer than a
 * listing may.
 */
bool rfs_view_hidden_is_known(struct rfs_view *view, uint64_t id);

/*
 * Gives the tensors of a group, planned at the first call. In a view with a planner, group 0 has
 * the whole tensors, and group 1 + R those of destination rank R. Returns 0 or -errno with *err
 * filled.
 */
int rfs_view_hidden_tensors(struct rfs_view *view, uint32_t group, struct rfs_tensors *out,
                            struct rfs_error *err);

/*
 * Makes the image of a file, owned by the caller, and gives its tensors. Returns 0, -ENOENT when
 * there is no such target, or -errno, with *err filled.
 */
int rfs_view_hidden_image(struct rfs_view *view, const struct rfs_view_hidden_object *object,
                          struct rfs_tensors *tensors, struct rfs_image **out,
                          struct rfs_error *err);

/*
 * Look up, list and describe "tensors" and entries below it, as the public functions do. Failures
 * to look up and to list go to the view's log.
 */
int rfs_view_hidden_lookup(struct rfs_view *view, uint64_t parent, const char *name, uint64_t *id);
int rfs_view_hidden_list(struct rfs_view *view, uint64_t dir, uint64_t position,
                         reshard_dirent *full);
int rfs_view_hidden_stat(struct rfs_view *view, uint64_t id, reshard_stat *full,
                         struct rfs_error *err);

/* Frees and empties view->hidden. */
void rfs_view_hidden_end(struct rfs_view *view);
