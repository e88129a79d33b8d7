/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of the source that conversion rules leave out because they should be copies of others,
 * such as an output that is tied to the embeddings. If their bytes differ, the view would drop
 * trained weights, so nothing that is made of such an original is shown before both were compared.
 *
 * Cost: each copy and its original are read once, in the first call that needs the result; 16 MiB
 * meanwhile.
 *
 * Threads: many at once; the others wait for the one that compares.
 */
#pragma once

#include "view/internal.h"

/* Compares all of them, at the first call. 0, or -EINVAL if one differs, or -errno; *err filled. */
int rfs_view_compare(struct rfs_view *view, struct rfs_error *err);
/* Compares them if a tensor in the image is made of an original. 0 or -errno with *err filled. */
int rfs_view_compare_for(struct rfs_view *view, const struct rfs_image *image,
                         struct rfs_error *err);
