/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the reader of Checkpoint 2.0 only. */
#ifndef RFS_SOURCE_BOXES_MINDFORMERS_INTERNAL_H
#define RFS_SOURCE_BOXES_MINDFORMERS_INTERNAL_H

#include "base/intern.h"
#include "base/json_read.h"
#include "base/vec.h"
#include "source/boxes/internal.h"

/* A text that outlives the next string that is read; a NUL follows it. */
struct rfs_mf_text {
    char *data;
    size_t n, cap;
};

/* metadata.json being read. */
struct rfs_mf {
    struct rfs_boxes *boxes;
    const char *path; /* of the file, for messages */
    struct rfs_json_read json;
    struct rfs_mf_text name;    /* of the tensor at hand */
    RFS_VEC(uint64_t) slices;   /* of that tensor: the numbers of those that it has */
    struct rfs_intern *listing; /* names of what the folder has */
    /* Files of copies of the slice at hand: the last, the one that is taken, the one to be taken. */
    struct rfs_mf_text file, best, first;
    struct rfs_intern *missing; /* files that were to be taken; NULL: all are there */
    uint64_t stand_ins;         /* slices that are taken from other files instead */
    struct rfs_error *err;
};

/* Makes a copy in TEXT. False when out of memory. */
bool rfs_mf_keep(struct rfs_mf_text *text, const char *data, size_t n);

/* A message about the tensor at hand, at the place where reading is. */
#define RFS_MF_HERE(mf)                                                                            \
    ((struct rfs_where){(mf)->path, (int64_t)rfs_json_read_place(&(mf)->json), (mf)->name.data})
/* 0, or -errno with the reason why reading ended early. */
int rfs_mf_ended(const struct rfs_mf *mf);

/* The value of state_dict_metadata: declares all tensors and their slices. 0 or -errno. */
int rfs_mf_read_tensors(struct rfs_mf *mf);
/* The value of storage_data: stores each slice in one file. 0 or -errno. */
int rfs_mf_read_storage(struct rfs_mf *mf);

#endif
