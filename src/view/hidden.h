/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hidden folder: .reshardfs/tensors/rank_N/NAME.npy and NAME.json, and tensors/full likewise with whole
 * tensors; in a view of several saves, tensors/EPOCH_STEP/ has those of each. It is found by name and in no list
 * of the root's. In a flat view there is "full" alone; of hfai's parts it has the model's tensors, and of several
 * models there are model_0 and so on.
 *
 * Ids are computed: RFS_CONTROL_BIT is set in those of the hidden folder, then come the number of a group (a
 * folder below tensors) and that of an entry in it. Nothing is made before somebody looks inside: a rank is
 * planned when its folder is listed, or a name is looked up in it, a file is encoded when it is opened or stat'ed, and
 * forgotten when it is closed. What stays are the names of files that were listed (once for all ranks), and the
 * planner of whole tensors.
 *
 * Threads: all functions but end.
 */
#ifndef RFS_VIEW_HIDDEN_H
#define RFS_VIEW_HIDDEN_H

#include "view/internal.h"

#define RFS_CONTROL_BIT (UINT64_C(1) << 47)

/* What is behind an id of the hidden folder's. */
enum rfs_view_hidden_kind {
    RFS_CONTROL_NONE,
    RFS_CONTROL_TOP, /* .reshardfs */
    RFS_CONTROL_TENSORS,
    RFS_CONTROL_GROUP,
    RFS_CONTROL_FILE,
};
struct rfs_view_hidden_place {
    enum rfs_view_hidden_kind kind;
    uint32_t group;
    uint32_t target; /* of a file: its position in the parameter list */
    bool about;      /* it is the JSON file */
};

/* Where the tensors of a group come from: the view's. */
struct rfs_tensors {
    struct rfs_planner *planner; /* of which this is rank RANK; NULL with a stock */
    uint32_t rank;
    const struct rfs_storages *storages;
    const struct rfs_params *params;
    const struct rfs_rank_plan *plan;
};

/* Whether ID is one of the hidden folder's, or could be. */
static inline bool rfs_view_hidden_owns(const struct reshard_view *view, uint64_t id)
{
    return ((id - view->base) & RFS_CONTROL_BIT) != 0;
}

/* The id of .reshardfs, which the view of one save of several has not. */
static inline uint64_t rfs_view_hidden_top(const struct reshard_view *view)
{
    return view->base | RFS_CONTROL_BIT;
}

struct rfs_view_hidden_place rfs_view_hidden_find(const struct reshard_view *view, uint64_t id);

/*
 * The tensors of a group, planned at the first call. 0 or -errno with *err filled: of a file that a rank's file
 * depends on, as reshard.h tells.
 */
int rfs_view_hidden_tensors(struct reshard_view *view, uint32_t group, struct rfs_tensors *out,
                            struct rfs_error *err);
/* As reshard_is_ready; of a JSON file never, which takes longer than what lists should cost. */
bool rfs_view_hidden_is_known(struct reshard_view *view, uint64_t id);

/*
 * The image of a file, owned by the caller, and its tensors. 0, -ENOENT when there is no such target, or -errno,
 * with *err filled.
 */
int rfs_view_hidden_image(struct reshard_view *view, const struct rfs_view_hidden_place *place,
                          struct rfs_tensors *tensors, struct rfs_image **out,
                          struct rfs_error *err);
/* The JSON file; about.c. 0 or -errno with *err filled. */
int rfs_view_hidden_about(struct reshard_view *view, const struct rfs_view_hidden_place *place,
                          const struct rfs_tensors *tensors, struct rfs_image **out,
                          struct rfs_error *err);

/* Of folders and files of the hidden folder, as the public functions; failures go to the view's log. */
int rfs_view_hidden_lookup(struct reshard_view *view, uint64_t parent, const char *name,
                           uint64_t *id);
int rfs_view_hidden_list(struct reshard_view *view, uint64_t dir, uint64_t position,
                         reshard_dirent *full);
int rfs_view_hidden_stat(struct reshard_view *view, uint64_t id, reshard_stat *full,
                         struct rfs_error *err);

/* Frees what was made; view->control is empty then. */
void rfs_view_hidden_end(struct reshard_view *view);

/* Where the bytes of a target come from; as rfs_planner_slice. */
int rfs_tensors_slice(const struct rfs_tensors *tensors, uint32_t target, struct rfs_slice *slice);

#endif
