/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are not tensors, of a source in chunks, which describes itself. */
#pragma once

#include "formats/torch/document.h"
#include "view/internal.h"

/* Logs that N of them are left out; 0: nothing. */
void rfs_view_objects_log(struct rfs_view *view, size_t n);
/*
 * Logs how many of them the files of the view do not have. Logs nothing where files are those of
 * torch.save, since the first file that is made logs it, nor in a view that opens late, for a
 * comparison.
 */
void rfs_view_objects_log_unshown(struct rfs_view *view);

/*
 * Checks that all tensors of the source that can't be shown are left out. Returns 0, or -ENOTSUP
 * with *err filled: it names the first that is not.
 */
int rfs_view_objects_check_unread(const struct rfs_view *view, struct rfs_error *err);

/* The objects that a document takes nodes from; zero-initialise, and end it after the document. */
struct rfs_view_objects {
    RFS_VEC(struct rfs_torch) open;
};
void rfs_view_objects_end(struct rfs_view_objects *objects);

/*
 * Adds the objects that can be read to a document, whose root is a dict of the tensors of PARAMS,
 * by their shown names, and counts those that are left out in *left_out. Returns 0 or -errno with
 * *err filled.
 */
int rfs_view_objects_add(struct rfs_view *view, const struct rfs_params *params,
                         struct rfs_document *document, struct rfs_view_objects *objects,
                         size_t *left_out, struct rfs_error *err);

/* Reports a name that names= gave to two values, one at least an object: -EINVAL, *err filled. */
int rfs_view_objects_same_name(const char *source, const char *name, struct rfs_error *err);
/*
 * Checks that no two objects of a source in chunks are shown by one name. Returns 0, or -errno with
 * *err filled.
 */
int rfs_view_objects_check_names(struct rfs_view *view, struct rfs_error *err);
