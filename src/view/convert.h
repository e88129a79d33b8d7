/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views through conversion rules (rules/rules.h): the source is planned as one whole checkpoint,
 * and the rules make of it the checkpoint that the view shows.
 */
#pragma once

#include "rules/rules.h"
#include "view/flat.h"

/*
 * If the options say so: view->catalog is then that of the made tensors, and view->src is NULL, as
 * that is not cut. After the strategy of the source is read. 0 or -errno with *err filled.
 */
int rfs_view_convert(struct rfs_view *view, struct rfs_error *err);
/*
 * The rules that the option names: a path, or a name of those that are installed. 0 with *out owned
 * by the caller, or -errno with *err filled.
 */
int rfs_view_convert_rules(const char *value, struct rfs_rules **out, struct rfs_error *err);
void rfs_view_convert_free(struct rfs_view *view);

/*
 * The files beside the given config that belong to a model, which view=huggingface shows as they
 * are: config.json, generation_config.json, the tokenizer's, and code. Zero-initialise.
 */
struct convert_files {
    RFS_VEC(char *) names; /* owned */
    char *folder;          /* owned */
};
int rfs_view_convert_list(const struct rfs_view *view, struct convert_files *files,
                          struct rfs_error *err);
/* Shows them; there is room in view->files. 0 or -errno with *err filled. */
int rfs_view_convert_show(struct rfs_view *view, const struct convert_files *files,
                          struct rfs_error *err);
void rfs_view_convert_files_end(struct convert_files *files);
