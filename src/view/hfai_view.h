/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of hfai's parts: PART_*.pt for another number of processes in the root, and the whole state
 * in the folder "merged". Safetensors files are made when the view is opened, the others on demand.
 */
#pragma once

#include "formats/hfai/hfai.h"
#include "view/tensors.h"

/* The state, and a list of its tensors, which are those of a checkpoint that describes itself. */
struct rfs_view_hfai_list {
    /* number I is tensor I of the state; owns its catalogue and planner, which is NULL if empty */
    struct rfs_tensors tensors;
    struct rfs_hfai_list state;               /* state without its chunks */
    const struct rfs_hfai_division *division; /* division among the parts shown; the view's */
};
enum rfs_view_hfai_what {
    RFS_VIEW_HFAI_MODELS, /* the models alone */
    RFS_VIEW_HFAI_STATE,  /* all of the state */
    RFS_VIEW_HFAI_ROWS,   /* so, and what the source or the view has in pieces is rows */
};
/* Lists a part of a view of parts; freed in any case. Returns 0 or -errno with *err filled. */
int rfs_view_hfai_list(struct rfs_view *view, enum rfs_view_hfai_what what,
                       struct rfs_view_hfai_list *out, struct rfs_error *err);
void rfs_view_hfai_list_free(struct rfs_view_hfai_list *list);
