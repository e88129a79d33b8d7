/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of hfai's parts: PART_*.pt for another number of processes in the root, and the whole state in the
 * folder "merged".
 */
#ifndef RFS_VIEW_BUNDLE_H
#define RFS_VIEW_BUNDLE_H

#include "hfai/hfai.h"
#include "view/internal.h"

/*
 * Reads the parts and sets view->bundle and the files; no image is made yet. The catalogue is open. 0 or
 * -errno with *err filled.
 */
int rfs_view_bundle_open(struct reshard_view *view, struct rfs_error *err);
void rfs_view_bundle_free(struct rfs_bundle *bundle);
/* The image of a file that has none yet, made at each call. 0 or -errno with *err filled. */
int rfs_view_bundle_image(struct reshard_view *view, size_t file, struct rfs_image **out,
                          struct rfs_error *err);
/* Whether a file's readers map it. */
bool rfs_view_bundle_is_mapped(const struct reshard_view *view, size_t file);
const struct rfs_hfai *rfs_view_bundle_hfai(const struct rfs_bundle *bundle);
/* Among the parts shown. */
const struct rfs_hfai_division *rfs_view_bundle_division(const struct rfs_bundle *bundle);
/* How many models the state has. */
size_t rfs_view_bundle_models(const struct rfs_bundle *bundle);
/*
 * The tensors of a model, and where they are, made at the first call: the bundle's. 0 or -errno with *err filled.
 */
int rfs_view_bundle_tensors(struct reshard_view *view, size_t model,
                            const struct rfs_params **params, const struct rfs_storages **storages,
                            struct rfs_error *err);
/* What all files depend on: every part. */
const struct rfs_rank_plan *rfs_view_bundle_plan(const struct rfs_bundle *bundle);

#endif
