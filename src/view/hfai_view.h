/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of hfai's parts: PART_*.pt for another number of processes in the root, and the whole state
 * in the folder "merged". Safetensors files are made when the view is opened, the others on demand.
 */
#pragma once

#include "formats/hfai/hfai.h"
#include "view/internal.h"

/* Tensors of the state, as those of a checkpoint that describes itself, and their plan. */
struct rfs_view_hfai_list {
    struct rfs_hfai_list list;                /* list without its chunks */
    const struct rfs_hfai_division *division; /* division among the parts shown; the view's */
    struct rfs_catalog *catalog;              /* catalogue of the list's tensors; owned */
    struct rfs_planner *planner;              /* planner of one rank; owned; NULL without tensors */
    const struct rfs_params *params;          /* targets; number I is tensor I of the list */
};
/*
 * Lists the state of a view of parts, or its MODELS alone. With ROWS, tensors that the source or
 * the view has in pieces are rows of elements. Returns 0 or -errno with *err filled; to be freed in
 * any case.
 */
int rfs_view_hfai_list(struct rfs_view *view, bool models, bool rows,
                       struct rfs_view_hfai_list *out, struct rfs_error *err);
void rfs_view_hfai_list_free(struct rfs_view_hfai_list *list);
