/* SPDX-License-Identifier: Apache-2.0 */
/* A single tensor: as numpy.save writes it, and its description in JSON. */
#pragma once

#include "image/build.h"
#include "image/image.h"

/* How numpy holds a value. */
struct rfs_npy {
    char descr[16];     /* as of numpy.dtype.str */
    const char *really; /* the elements' dtype, where numpy has none for it; else NULL */
    uint32_t ndim;
    uint64_t dims[RFS_MAX_DIMS];
};

/*
 * Types that numpy lacks are raw bytes of their width, as those of ml_dtypes are in such files: V2
 * for bfloat16, which .view(ml_dtypes.bfloat16) makes into what it is. A string is a scalar of that
 * many characters; other values are a row of bytes.
 */
void rfs_npy_describe(const struct rfs_type *type, struct rfs_npy *out);
/* Appends all that comes before the data. False when out of memory. */
bool rfs_npy_header(const struct rfs_npy *npy, struct rfs_bytes *out);

/* The .npy file of a parameter list's target as it is shown. 0, -ENOMEM or -EFBIG. */
int rfs_image_npy(struct rfs_catalog *catalog, const struct rfs_params *params, uint32_t target,
                  struct rfs_image **out);

/* The contents of the JSON file beside it. All is borrowed. */
struct rfs_about {
    const char *name;        /* as shown */
    const char *source_name; /* as in the source */
    const struct rfs_type *type;
    const struct rfs_type *source_type; /* before elements are converted */
    int64_t rank;                       /* of the destination; -1: of none alone */

    uint32_t ndim;                          /* of the arrays below; 0: it is not cut, or a scalar */
    const uint64_t *whole;                  /* [ndim] dims of the whole tensor */
    const uint32_t *source_pieces, *pieces; /* [ndim] into how many it is cut */
    size_t n_boxes;
    /* [n_boxes][ndim][2] begin and end in the whole, in the order of the rows */
    const uint64_t *boxes;

    size_t n_ranks;
    const uint32_t *ranks; /* of the source, whose files give bytes, ascending */
    size_t n_files;
    const char *const *files; /* their paths */
};

/* 0 or -ENOMEM. */
int rfs_image_about(const struct rfs_about *about, struct rfs_image **out);
