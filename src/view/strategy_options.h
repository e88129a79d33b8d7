/* SPDX-License-Identifier: Apache-2.0 */
/* The strategies that options name: read from files, or made by rules of layouts. */
#pragma once

#include "base/error.h"
#include "base/path.h"
#include "layout/layout_rules.h"
#include "layout/strategy.h"

struct rfs_view;

/*
 * Reads the strategy that TEXT names: the path of a strategy file, of a folder of the files of a
 * pipeline's stages, or several of either with ':' between. Several files are merged in memory.
 * Returns 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_view_read_strategy(const char *text, struct rfs_strategy **out, struct rfs_error *err);

/*
 * Appends the paths of the strategy files in a folder, sorted. Returns 0, or -errno with *err
 * filled.
 */
int rfs_view_list_strategies(const char *folder, struct rfs_path_list *out, struct rfs_error *err);

/*
 * Reads rules of layouts: VALUE is the path of their file, or the rules themselves with ';' between
 * lines; OPTION is their name in messages. Returns 0 with *out owned by the caller, or -errno with
 * *err filled.
 */
int rfs_view_read_layout_rules(const char *option, const char *value, struct rfs_layout_rules **out,
                               struct rfs_error *err);

/*
 * Sets view->src and view->dst, of the files or by the rules that the options name; NULL is
 * unsharded. The catalogue is open; with conversion rules it is another one afterwards
 * (rules_view.h). Rules for the source are for the tensors of its files: the headers of the first
 * rank and of the last are read, and all others' only if these two show that each lacks parameters
 * of the other. Rules for the destination are for the parameters of view->src, or if that is NULL
 * of the files. Headers that have been read must fit. Returns 0, or -errno with *err filled.
 */
int rfs_view_take_strategies(struct rfs_view *view, struct rfs_error *err);
