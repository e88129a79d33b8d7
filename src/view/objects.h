/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room: values that are not tensors, of a source that describes itself. */
#pragma once

#include "hfai/document.h"
#include "view/internal.h"

/*
 * Logs how many of them the files of the view do not have; of files of torch.save nothing, nor in a
 * view that opens late, for a comparison.
 */
void rfs_objects_tell(struct rfs_view *view);

/*
 * Whether all tensors of the source that can't be shown are left out. 0, or -ENOTSUP with *err
 * filled: it names the first that is not.
 */
int rfs_objects_check_unread(const struct rfs_view *view, struct rfs_error *err);

/* The objects that a document takes nodes from; zero-initialise, and end it after the document. */
struct rfs_objects {
    RFS_VEC(struct rfs_torch) open;
};
void rfs_objects_end(struct rfs_objects *objects);

/*
 * Adds the objects that can be read to a document, whose root is a dict of the tensors of PARAMS,
 * by their shown names. The others are left out, and the log says so once. 0 or -errno with *err
 * filled.
 */
int rfs_objects_add(struct rfs_view *view, const struct rfs_params *params,
                    struct rfs_document *document, struct rfs_objects *objects,
                    struct rfs_error *err);

/* A name that names= gave to two values, one at least an object: -EINVAL with *err filled. */
int rfs_objects_same_name(const char *source, const char *name, struct rfs_error *err);
/* Whether no two objects are shown by one name. There are boxes. 0, or -errno with *err filled. */
int rfs_objects_check_names(struct rfs_view *view, struct rfs_error *err);
