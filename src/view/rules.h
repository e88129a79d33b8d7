/* SPDX-License-Identifier: Apache-2.0 */
/* The strategies that rules make (layout/rules.h). */
#ifndef RFS_VIEW_RULES_H
#define RFS_VIEW_RULES_H

#include "layout/rules.h"
#include "view/internal.h"

/*
 * Sets view->src by the option src_rules: for the tensors of the source's files. The headers of the first rank
 * and of the last are read, and all others' only if these tell that each lacks what others have.
 */
int rfs_view_src_rules(struct rfs_view *view, struct rfs_error *err);

/* Sets view->dst by the option dst_rules: for the parameters of view->src, or if that is NULL of the files. */
int rfs_view_dst_rules(struct rfs_view *view, struct rfs_error *err);

/*
 * VALUE is the path of a file of rules, or the rules themselves with ';' between lines; OPTION is what messages call
 * them then. 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_view_read_rules(const char *option, const char *value, struct rfs_rules **out,
                        struct rfs_error *err);

/* Whether the rules fit the tensors whose headers have been read by then. 0, or -errno with *err filled. */
int rfs_view_check_rules(struct rfs_view *view, struct rfs_error *err);

#endif
