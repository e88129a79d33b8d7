/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the reader of Checkpoint 2.0 only. */
#pragma once

#include "base/intern.h"
#include "base/json_read.h"
#include "base/vec.h"
#include "formats/chunks/internal.h"
#include "formats/chunks/mindformers.h"

/* A text that outlives the next string that is read; a NUL follows it. */
struct rfs_mf_text {
    char *data;
    size_t n, cap;
};

/* metadata.json being read. */
struct rfs_mf {
    struct rfs_chunks *boxes;
    const char *path; /* of the file, for messages */
    struct rfs_json_read json;
    struct rfs_mf_text name;      /* of the tensor at hand */
    RFS_VEC(uint64_t) slices;     /* of that tensor: the numbers of those that it has */
    struct rfs_intern *listing;   /* names in the folder */
    RFS_VEC(unsigned char) named; /* by id in it: the metadata names that file */
    RFS_VEC(uint32_t) copies;     /* numbers of the files that have the slice at hand */
    /*
     * Files of copies of the slice at hand: the last, the one that is taken, the one to be taken.
     */
    struct rfs_mf_text file, best, first;
    struct rfs_intern *missing; /* files that were to be taken; NULL: all are there */
    uint64_t stand_ins;         /* slices that are taken from other files instead */
    /* Not NULL: the boxes are finished, and layouts are read. */
    struct rfs_mf_layouts *layouts;
    RFS_VEC(uint64_t) ranks; /* that hold the slice at hand, some of them several times */
    RFS_VEC(uint32_t)
    seen;            /* by rank: 1 + the number of the last slice that it was found to hold */
    uint32_t n_seen; /* slices */
    struct rfs_error *err;
};

/* The layout of a tensor as metadata.json has it. */
struct rfs_mf_described {
    struct rfs_mf_layout layout;
    uint64_t first_rank,
        n_ranks; /* of rank_list; none: there is no list, or ranks are left out of it */
};

/* Makes a copy in TEXT. False when out of memory. */
bool rfs_mf_keep(struct rfs_mf_text *text, const char *data, size_t n);

/* A message about the tensor at hand, at the place where reading is. */
#define RFS_MF_HERE(mf)                                                                            \
    ((struct rfs_where){(mf)->path, (int64_t)rfs_json_read_place(&(mf)->json), (mf)->name.data})
/* 0, or -errno with the reason why reading ended early. */
int rfs_mf_ended(const struct rfs_mf *mf);

/* Notes the layout of the tensor at hand. 0 or -errno. */
int rfs_mf_note_layout(struct rfs_mf *mf, const struct rfs_mf_described *described);
/* Notes that a rank holds slice NUMBER of the tensor at hand, the n_seen-th. 0 or -errno. */
int rfs_mf_note_rank(struct rfs_mf *mf, uint64_t number, uint64_t rank);

/* Reads the text. 0 or -errno. */
int rfs_mf_read(struct rfs_mf *mf);
void rfs_mf_end(struct rfs_mf *mf);

/* The value of state_dict_metadata: declares all tensors and their slices. 0 or -errno. */
int rfs_mf_read_tensors(struct rfs_mf *mf);
/* The value of storage_data: stores each slice in one file. 0 or -errno. */
int rfs_mf_read_storage(struct rfs_mf *mf);
