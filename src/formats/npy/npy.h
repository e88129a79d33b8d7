/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the files of a single tensor: as numpy.save writes it, and its description in JSON. */
#pragma once

#include "formats/image.h"

/* A description of a value for numpy. */
struct rfs_npy {
    char descr[16];     /* numpy.dtype.str */
    const char *really; /* dtype of the elements, where numpy has none for it; else NULL */
    uint32_t ndim;
    uint64_t dims[RFS_MAX_DIMS];
};

/*
 * Describes a value for numpy. Types that numpy lacks are raw bytes of their width, as ml_dtypes
 * writes them: V2 for bfloat16, which .view(ml_dtypes.bfloat16) makes into what it is. A string is
 * a scalar of that many characters; other values are a row of bytes. Other files than npy.c call it
 * for tests alone.
 */
void rfs_npy_describe(const struct rfs_type *type, struct rfs_npy *out);
/*
 * Appends all that comes before the data. False when out of memory. Other files than npy.c call it
 * for tests alone.
 */
bool rfs_npy_header(const struct rfs_npy *npy, struct rfs_bytes *out);

/* Makes the .npy file of a value of TYPE, whose bytes are those of TARGET. 0, -ENOMEM or -EFBIG. */
int rfs_npy_encode(const struct rfs_type *type, uint32_t target, struct rfs_image **out);

/* The contents of the JSON file beside it. All is borrowed. */
struct rfs_about {
    const char *name;        /* shown name */
    const char *source_name; /* name in the source */
    const struct rfs_type *type;
    const struct rfs_type *source_type; /* type before elements are cast */
    int64_t rank;                       /* destination rank of the file; -1: not of a single rank */

    uint32_t ndim;                          /* axes in the arrays below; 0: not cut, or a scalar */
    const uint64_t *whole;                  /* [ndim] dims of the whole tensor */
    const uint32_t *source_pieces, *pieces; /* [ndim] numbers of pieces along each axis */
    size_t n_boxes;
    /* [n_boxes][ndim][2] begins and ends in the whole, in the order of the rows */
    const uint64_t *boxes;

    size_t n_ranks;
    const uint32_t *ranks; /* [n_ranks] source ranks whose files give bytes, ascending */
    size_t n_files;
    const char *const *files; /* [n_files] paths of these files */
};

/* Makes the JSON file. 0 or -ENOMEM. */
int rfs_npy_encode_about(const struct rfs_about *about, struct rfs_image **out);
