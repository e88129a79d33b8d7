/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a HuggingFace model beside its tensors, which view=huggingface shows as they are:
 * config.json, and those of the tokenizer and the code from its folder.
 */
#pragma once

#include "base/path.h"
#include "plan/planner.h"
#include "rules/hf_config.h"
#include "view/internal.h"

/* The model's config; zero-initialise. */
struct rfs_view_model_config {
    char *config;            /* path of config.json; owned; NULL: none is shown */
    struct rfs_hf_cuts cuts; /* what is cut out of it; n 0: nothing */
};
void rfs_view_model_config_end(struct rfs_view_model_config *model);

/*
 * Finds the config that the options name, or the source's own. Returns 0, or -errno with *err
 * filled.
 */
int rfs_view_model_find(const struct rfs_view *view, struct rfs_view_model_config *model,
                        struct rfs_error *err);

/*
 * Has quantization_config cut out of the config that is shown, or logs that it stays because of the
 * tensor CODED. NULL: no tensor has other elements than plain floating-point numbers.
 */
void rfs_view_model_cut(struct rfs_view *view, struct rfs_view_model_config *model,
                        const struct rfs_hf_config *config, const char *coded,
                        enum rfs_dtype dtype);

/*
 * Compares the names of the shown tensors with those that the config, or else the source, tells of,
 * and logs what a loader would not find. Without rules only. Returns 0, or -errno with *err filled.
 */
int rfs_view_model_check(struct rfs_view *view, struct rfs_view_model_config *model,
                         const struct rfs_params *params, struct rfs_error *err);

/* Lists the files beside the config that are shown. Returns 0 or -errno with *err filled. */
int rfs_view_model_list(const struct rfs_view *view, const struct rfs_view_model_config *model,
                        struct rfs_path_list *names, struct rfs_error *err);
/*
 * Shows config.json, if there is one, and those files. There is room in view->files for all.
 * Returns 0 or -errno with *err filled.
 */
int rfs_view_model_show(struct rfs_view *view, const struct rfs_view_model_config *model,
                        const struct rfs_path_list *names, struct rfs_error *err);
