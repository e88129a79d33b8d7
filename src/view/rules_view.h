/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views through conversion rules (rules/rules.h): the source is planned as one whole checkpoint,
 * and the rules make of it the checkpoint that the view shows.
 *
 * Rules leave out tensors that should be copies of others, such as an output that is tied to the
 * embeddings. If their bytes differ, the view would drop trained weights, so nothing that is made
 * of such an original is shown before both were compared. Each copy and its original are read once,
 * in the first call that needs the result; 16 MiB meanwhile. Of many threads that need it, one
 * compares and the others wait.
 */
#pragma once

#include "view/internal.h"
#include "view/model_files.h"

/* What rules make, and of what. */
struct rfs_view_rules {
    struct rfs_names *names;       /* what drop_source leaves out; owned; NULL: nothing */
    struct rfs_planner *whole;     /* planner of the source as one whole checkpoint; owned */
    struct rfs_by_rules *made;     /* owned */
    struct rfs_lacking incomplete; /* source tensors with a part that no file has */
    struct rfs_strategy *src;      /* strategy of the source; owned; NULL: unsharded */
    struct rfs_view_model_config model;
    struct rfs_once compared; /* copies are; guarded by the view's lock, as the next member */
    struct rfs_error differs; /* the copy that does; code 0: none */
};

/* Returns what rules make for a view; NULL: there are none. */
static inline struct rfs_by_rules *rfs_view_by_rules(const struct rfs_view *view)
{
    return view->rules ? view->rules->made : NULL;
}

/*
 * Sets, if the options name rules, view->rules, view->catalog to that of the made tensors, and
 * view->src to NULL, as these are not cut. The strategy of the source has been read. Returns 0 or
 * -errno with *err filled.
 */
int rfs_view_rules_open(struct rfs_view *view, struct rfs_error *err);
/* NULL is fine. */
void rfs_view_rules_free(struct rfs_view_rules *rules);

/*
 * Compares all copies, at the first call. Returns 0, or -EINVAL if one differs, or -errno; *err is
 * filled.
 */
int rfs_view_compare_copies(struct rfs_view *view, struct rfs_error *err);
