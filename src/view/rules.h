/* SPDX-License-Identifier: Apache-2.0 */
/* The strategies of a view: read from files, or made by rules (layout/layout_rules.h). */
#pragma once

#include "layout/layout_rules.h"
#include "view/internal.h"

/*
 * Sets view->src and view->dst, of the files or by the rules that the options name; NULL is
 * unsharded. The catalogue is open; with conversion rules it is another one afterwards (convert.h).
 * Rules for the source are for the tensors of its files: the headers of the first rank and of the
 * last are read, and all others' only if these two show that each lacks parameters of the other.
 * Those for the destination are for the parameters of view->src, or if that is NULL of the files.
 * Headers that have been read must fit. 0, or -errno with *err filled.
 */
int rfs_view_strategies(struct rfs_view *view, struct rfs_error *err);

/*
 * VALUE is the path of a file of rules, or the rules themselves with ';' between lines; OPTION is
 * their name in messages. 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_view_read_rules(const char *option, const char *value, struct rfs_layout_rules **out,
                        struct rfs_error *err);
