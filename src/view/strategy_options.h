/* SPDX-License-Identifier: Apache-2.0 */
/* The names and strategies that options give: read from files, or made by rules of layouts. */
#pragma once

#include "base/error.h"

struct rfs_view;

/*
 * Sets view->src and view->dst, of the files or by the rules that the options name (NULL is
 * unsharded), and between them view->names. The catalogue is open; with conversion rules it is
 * another one afterwards (rules_view.h). Rules for the source are for the tensors of its files: the
 * headers of the first rank and of the last are read, and all others' only if these two show that
 * each lacks parameters of the other. Rules for the destination are for the parameters of
 * view->src, or if that is NULL of the files, without those that view->names leaves out. Headers
 * that have been read must fit. Returns 0, or -errno with *err filled.
 */
int rfs_view_take_strategies(struct rfs_view *view, struct rfs_error *err);

/*
 * Adds ready cuts to the remedy of an error that wants a strategy of the source
 * (RFS_STRATEGY_WANTED), where they know all parameters of its ranks. Does nothing to others. Reads
 * what rfs_view_take_strategies does for rules of the source.
 */
void rfs_view_offer_cuts(const struct rfs_view *view, struct rfs_error *err);
