/* SPDX-License-Identifier: Apache-2.0 */
/* The strategies of a view: read from the files, or made by the rules, that its options name. */
#ifndef RFS_VIEW_STRATEGIES_H
#define RFS_VIEW_STRATEGIES_H

#include "view/internal.h"

/*
 * Sets view->src and view->dst; NULL is unsharded. The catalogue is open: rules take the names of its
 * parameters. 0 or -errno with *err filled.
 */
int rfs_view_strategies(struct rfs_view *view, struct rfs_error *err);

#endif
